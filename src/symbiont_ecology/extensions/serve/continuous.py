"""Continuous batching: rows of many adapters that join and leave between tokens.

A service cannot wait until a batch is full, nor let a short answer wait for a long one. So rows
join and leave between tokens (Orca, Yu et al. 2022). Where the decoder can do so, a newcomer's
prompt is read in the same pass in which the others have their next token (Sarathi-Serve, Agrawal et
al. 2024, arXiv:2403.02310). A row keeps the adapter with which it began, whatever is learned
meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.serve.streaming import LostRow, NewToken, RowId, StreamedRequest
from symbiont_ecology.model.budget import if_memory_lasts, is_out_of_memory
from symbiont_ecology.model.decoder import Prefill, Session
from symbiont_ecology.model.decoding import inverse_cdf
from symbiont_ecology.model.kernel import HostKernel

UNSURE = "\ufffd"
"""Stands at the end of a text whose last letter is not complete yet."""


@dataclass(eq=False)
class _Row:
    """A row that is being written."""

    id: RowId
    request: StreamedRequest
    slot: int
    ids: list[int] = field(default_factory=list)
    shown: int = 0
    """Letters of its text that were told."""

    @property
    def longest(self) -> int:
        """Tokens that prompt and answer have at most."""
        return len(self.request.prompt) + self.request.max_new_tokens


class ContinuousBatch:
    """Rows that are being written, each by its adapter. Not for several threads.

    It has a slot bank of its own: whatever happens in the slots of the kernel does not reach it.
    """

    def __init__(self, kernel: HostKernel, slots: int) -> None:
        self._codec = kernel.codec
        self._decoder, self._bank, self._budget = kernel.parts(slots)
        self._rows: list[_Row] = []  # as in the session: by slot
        self._session: Session | None = None
        self._newest = torch.empty(0, dtype=torch.int64)  # of each row, and not read yet
        self._waiting: list[_Row] = []  # whose prompts are not read yet
        self._most: int | None = None  # as many of them as memory had room for, until a row leaves
        self._slots: list[AdapterWeights | None] = [None] * slots
        self._next_id = 0
        self._lost: list[LostRow] = []  # and not told yet

    def __len__(self) -> int:
        return len(self._rows) + len(self._waiting)

    def check(self, request: StreamedRequest) -> None:
        """Check that a request can be answered at all.

        Raises:
            HostError: it has no room in the host's positions, or asks for no token.
            AdapterError: its adapter does not fit.
        """
        request.check(self._decoder.shape.max_positions)
        if request.weights is not None:
            self._bank.check(request.weights)

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        """Takes in the first of these requests, as many as there is room for now; returns their
        rows' ids. The others have to ask again. The next step reads their prompts, or a later one:
        if memory runs out beside rows that are being written, newcomers wait for one of these to
        leave."""
        joined = list[RowId]()
        for request in requests:
            slot = self._slot_for(request.weights)
            longest = max(len(request.prompt) + request.max_new_tokens, self._longest())
            count = len(self) + 1
            if slot is None or (count > 1 and count > self._budget.rows(longest)):
                break
            self._waiting.append(_Row(self._next_id, request, slot))
            joined.append(self._next_id)
            self._next_id += 1
        return joined

    def step(self) -> list[NewToken | LostRow]:
        """Write one more token of every row. Rows that end leave. If memory runs out, all
        that are being written are lost; so is a newcomer for which there is none at all."""
        messages = list[NewToken | LostRow]()
        with self._all_or_none():
            logits = self._sorted(self._next_logits())
            if self._rows:
                messages += self._written(logits)
        losses, self._lost = self._lost, []
        return messages + losses

    def leave(self, rows: Sequence[RowId]) -> None:
        """Drop rows that nobody waits for any more."""
        self._waiting = [row for row in self._waiting if row.id not in rows]
        with self._all_or_none():
            self._keep([row.id not in rows for row in self._rows])

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """Guard what changes the rows. If memory runs out in the midst of it, nobody can say
        how far each of them came: all are lost, which the next step tells."""
        try:
            with torch.inference_mode():
                yield
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = HostError(
                f"expected memory to go on with {len(self._rows)} answers, got none: ask for fewer "
                "tokens, or later"
            )
            self._lost += [LostRow(row.id, reason) for row in self._rows]
            self._empty()

    def _slot_for(self, weights: AdapterWeights | None) -> int | None:
        """Return the slot of an adapter, which is placed there; None if all are in use."""
        if weights is None:
            return HOST_SLOT
        used = {row.slot for row in (*self._rows, *self._waiting)}
        slot = find_slot(weights, self._slots, used)
        if slot is None:
            return None
        self._slots[slot] = weights
        self._bank.place(slot, weights)
        return slot

    def _longest(self) -> int:
        """Return the tokens that any row may have."""
        return max((row.longest for row in (*self._rows, *self._waiting)), default=0)

    def _next_logits(self) -> Tensor:
        """Lets all rows go on, and as many newcomers in as memory has room for; what each row's
        next token is chosen from, ``(rows, vocab)``."""
        newcomers = self._waiting[: self._most]
        if newcomers:
            return self._admit(newcomers)
        if self._session is None:
            return torch.empty(0)
        return self._session.step(self._newest, *self._bank.for_step(self._row_slots))

    def _admit(self, newcomers: Sequence[_Row]) -> Tensor:
        """Reads the prompts of newcomers beside the rows that go on. If there is no memory for
        them, they wait."""
        readers = sorted(newcomers, key=lambda row: (row.slot, row.request.prompt.tobytes()))
        prompts, slots = [row.request.prompt for row in readers], [row.slot for row in readers]
        rows, session, logits = [*self._rows, *readers], self._session, torch.empty(0)
        prefill = Prefill(prompts, slots, self._places(rows), self._bank, self._budget)
        if session is None:
            started = if_memory_lasts(partial(self._decoder.start, prefill))
            logits, session = started or (logits, None)
        else:
            logits = session.admit(self._newest, self._row_slots, prefill)
        if len(logits) == len(rows):
            self._rows, self._session = rows, session
            self._waiting = self._waiting[len(newcomers) :]
        else:
            self._wait(newcomers)
        return logits

    def _wait(self, newcomers: Sequence[_Row]) -> None:
        """Read fewer at a time, as there was no memory for so many. A single one waits for
        a row to leave, or is lost if there is none."""
        self._most = len(newcomers) // 2
        if self._most or self._rows:
            return
        self._most = None
        row = self._waiting.pop(0)
        reason = HostError(
            f"expected memory for {row.longest} tokens of prompt and answer, got none: ask for "
            "fewer, or later"
        )
        self._lost.append(LostRow(row.id, reason))

    def _sorted(self, logits: Tensor) -> Tensor:
        """Sort rows by slot; return their logits."""
        order = sorted(range(len(self._rows)), key=lambda place: self._rows[place].slot)
        if order == list(range(len(order))):
            return logits
        self._arrange(order)
        return logits[order]

    @property
    def _row_slots(self) -> list[int]:
        return [row.slot for row in self._rows]

    def _places(self, rows: Sequence[_Row]) -> int:
        """Return room that every row has in the cache: all of them write side by side with torch,
        behind the longest."""
        length = max(len(row.request.prompt) + len(row.ids) for row in rows)
        rest = max(row.request.max_new_tokens - len(row.ids) for row in rows)
        return length + rest

    def _written(self, logits: Tensor) -> list[NewToken]:
        """Return the next token of every row; rows that end leave."""
        tokens, scores, alternatives = self._choose(logits.float())
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.ids.append(token)
        texts = self._codec.decode([row.ids for row in self._rows])
        facts = zip(self._rows, texts, scores, alternatives, strict=True)
        new_tokens = [self._told(*new_token) for new_token in facts]
        self._newest = tokens
        self._keep([not fact.end for fact in new_tokens])
        return new_tokens

    def _choose(self, logits: Tensor) -> tuple[Tensor, list[float], list[dict[int, float]]]:
        """Return tokens ``(rows,)``, their log-probabilities, and the likeliest ones of who
        asked."""
        scores = logits.log_softmax(-1)
        places = [place for place, row in enumerate(self._rows) if row.request.generator]
        if len(places) == len(self._rows):
            tokens = self._drawn(logits, self._rows)
        else:
            tokens = logits.argmax(-1)
        if 0 < len(places) < len(self._rows):
            tokens[places] = self._drawn(logits[places], [self._rows[place] for place in places])
        token_scores = scores.gather(1, tokens[:, None])[:, 0].tolist()
        alternatives = list[dict[int, float]]()
        for place, row in enumerate(self._rows):
            if not row.request.alternatives:
                alternatives.append({})
                continue
            best = scores[place].topk(row.request.alternatives)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            alternatives.append(dict(pairs))
        return tokens, token_scores, alternatives

    def _drawn(self, logits: Tensor, rows: Sequence[_Row]) -> Tensor:
        """Return tokens of rows that draw theirs."""
        uniforms = [row.request.generator.random() for row in rows if row.request.generator]
        knobs = [(row.request.decoding.temperature, row.request.decoding.top_p) for row in rows]
        numbers = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
        columns = torch.tensor(knobs, dtype=torch.float64, device=logits.device).T
        temperature, top_p = columns[..., None]
        mass = top_p if bool((top_p < 1.0).any()) else 1.0
        return inverse_cdf(logits, numbers, temperature, mass)

    def _told(
        self, row: _Row, text: str, score: float, alternatives: Mapping[int, float]
    ) -> NewToken:
        """Return what is to be said of a row's newest token, which ends its text."""
        decoding, token, end = row.request.decoding, row.ids[-1], ""
        cut = decoding.cut(text)
        if token in self._codec.end_tokens or cut != text:
            end = "stop"
        elif len(row.ids) == row.request.max_new_tokens:
            end = "length"
        ready = len(cut) if end else _ready(cut, decoding.stop)
        new_text = cut[row.shown : ready]
        row.shown = max(row.shown, ready)
        return NewToken(row.id, token, score, new_text, end, alternatives)

    def _keep(self, stays: Sequence[bool]) -> None:
        """Goes on with these rows only."""
        if all(stays):
            return
        self._most = None
        places = [place for place, stay in enumerate(stays) if stay]
        self._newest = self._newest[places]
        self._arrange(places)

    def _arrange(self, places: Sequence[int]) -> None:
        """Goes on with the rows at these places, in this order."""
        if not places or self._session is None:
            self._empty()
            return
        self._session.keep(torch.tensor(places, device=self._decoder.device))
        self._rows = [self._rows[place] for place in places]

    def _empty(self) -> None:
        """Forget all rows."""
        self._rows, self._session, self._most = [], None, None
        self._newest = self._newest[:0]


def _ready(text: str, stops: Sequence[str]) -> int:
    """Letters that can be shown: what may become a stop text, or another letter, waits."""
    text, count = text.rstrip(UNSURE), 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                count = max(count, size)
                break
    return len(text) - count


def find_slot(
    weights: AdapterWeights, held: Sequence[AdapterWeights | None], used: Collection[int]
) -> int | None:
    """Return the slot of an adapter, or else one for it: an empty slot first, then one that nobody
    uses. None if all are in use."""
    for slot, adapter in enumerate(held):
        if adapter is weights:
            return slot
    free = [slot for slot in range(len(held)) if slot not in used]
    empty = [slot for slot in free if held[slot] is None]
    return next(iter(empty or free), None)
