"""Continuous batching: rows of many adapters that join and leave between tokens.

A service cannot wait until a batch is full, nor let a short answer wait for a long one. So rows
join and leave between tokens (Orca, Yu et al. 2022). Where the decoder can do so, a newcomer's
prompt is read in the same pass in which the others have their next token (Sarathi-Serve, Agrawal et
al. 2024, arXiv:2403.02310). A row keeps the adapter with which it began, whatever is learned
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterWeights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.serve.forms import Form, Forms
from symbiont_ecology.extensions.serve.streaming import (
    LostRow,
    NewToken,
    RowId,
    ScoredToken,
    StreamedRequest,
)
from symbiont_ecology.model.budget import is_out_of_memory
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
    ends: frozenset[int] = frozenset()
    form: Form | None = None
    ids: list[int] = field(default_factory=list)
    shown: int = 0
    """Letters of its text that were told."""

    @property
    def is_scored(self) -> bool:
        """True if the log-probabilities of its tokens are told."""
        return self.request.alternatives is not None

    @property
    def longest(self) -> int:
        """Tokens that prompt and answer have at most."""
        return len(self.request.prompt) + self.request.max_new_tokens


class ContinuousBatch:
    """Rows that are being written, each by its adapter. Not for several threads.

    It has a slot bank of its own: whatever happens in the slots of the kernel does not reach it.
    """

    def __init__(self, kernel: HostKernel, slots: int) -> None:
        self._codec, self._forms = kernel.codec, Forms(kernel.codec)
        self._decoder, self._bank, self._budget = kernel.decoding_parts(slots)
        self._rows: list[_Row] = []  # as in the session: by slot
        self._session: Session | None = None
        self._newest = torch.empty(0, dtype=torch.int64)  # of each row, and not read yet
        self._waiting: list[_Row] = []  # whose prompts are not read yet
        self._is_full = False  # memory had no room for them, and no row has left since
        self._slots: list[AdapterWeights | None] = [None] * slots
        self._next_id = 0
        self._gone = set[RowId]()  # rows that nobody waits for

    def __len__(self) -> int:
        return len(self._rows) + len(self._waiting)

    def check(self, request: StreamedRequest) -> None:
        """Check that a request can be answered at all.

        Raises:
            HostError: it has no room in the host's positions, or no prompt, or wants a form that
                cannot be followed.
            AdapterError: its adapter does not fit.
        """
        request.check(self._decoder.shape.max_positions)
        if request.schema:
            self._forms.begin(request.schema)
        if request.weights is not None:
            self._bank.check(request.weights)

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        """Take in the first of these requests, as many as there is room for now; return their
        rows' ids. The others have to ask again. The next step reads their prompts, or a later one:
        if memory runs out beside rows that are being written, newcomers wait for one of these to
        leave."""
        joined = list[RowId]()
        for request in requests:
            slot = self._slot_for(request.weights)
            longest = max(row.longest for row in (_Row(0, request, 0), *self._all))
            count = len(self) + 1
            if slot is None or (count > 1 and count > self._budget.rows(longest)):
                break
            ends = self._codec.ends_of(request.decoding.stop)
            form = self._forms.begin(request.schema) if request.schema else None
            self._waiting.append(_Row(self._next_id, request, slot, ends, form))
            joined.append(self._next_id)
            self._next_id += 1
        return joined

    def leave(self, rows: Sequence[RowId]) -> None:
        """Drop rows that nobody waits for any more, before the next token."""
        self._waiting = [row for row in self._waiting if row.id not in rows]
        self._gone.update(rows)

    @torch.inference_mode()
    def step(self) -> Sequence[NewToken | LostRow]:
        """Write one more token of every row. Rows that end leave. If memory runs out, nobody can
        say how far each of them came: all are lost."""
        try:
            self._keep([row.id not in self._gone for row in self._rows])
            self._gone.clear()
            if self._waiting and not self._is_full:
                logits = self._admit()
            elif self._session is None:
                return []
            else:
                logits = self._session.step(self._newest, *self._bank.for_step(self._row_slots))
            return self._written(self._sorted(logits))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = HostError(
                f"expected memory to go on with {len(self._rows)} answers, got none: ask for fewer "
                "tokens, or later"
            )
            lost = [LostRow(row.id, reason) for row in self._rows]
            self._arrange([])
            return lost

    @property
    def _all(self) -> list[_Row]:
        return [*self._rows, *self._waiting]

    def _slot_for(self, weights: AdapterWeights | None) -> int | None:
        """Return the slot of an adapter; it is placed in an empty one, or else in one that no row
        uses. None if all are in use."""
        if weights is None:
            return HOST_SLOT
        for slot, adapter in enumerate(self._slots):
            if adapter is weights:
                return slot
        used = {row.slot for row in self._all}
        free = [slot for slot in range(len(self._slots)) if slot not in used]
        if not free:
            return None
        slot = next((slot for slot in free if self._slots[slot] is None), free[0])
        self._slots[slot] = weights
        self._bank.place(slot, weights)
        return slot

    def _admit(self) -> Tensor:
        """Read the prompts of newcomers beside the rows that go on; return what each row's next
        token is chosen from, ``(rows, vocab)``. If there is no memory for newcomers, they wait."""
        writing = self._rows
        readers = sorted(self._waiting, key=lambda row: (row.slot, row.request.prompt.tobytes()))
        prompts, slots = [row.request.prompt for row in readers], [row.slot for row in readers]
        self._rows, self._waiting = [*writing, *readers], []
        prefill = Prefill(prompts, slots, self._places(), self._bank, self._budget)
        if self._session is None:
            logits, self._session = self._decoder.start(prefill)
            return logits
        logits = self._session.admit(self._newest, [row.slot for row in writing], prefill)
        if len(logits) < len(self._rows):
            self._rows, self._waiting, self._is_full = writing, readers, True
        return logits

    def _sorted(self, logits: Tensor) -> Tensor:
        """Sort rows by slot; return their logits."""
        slots = self._row_slots
        order = sorted(range(len(slots)), key=slots.__getitem__)
        if order == list(range(len(order))):
            return logits
        self._arrange(order)
        return logits[order]

    @property
    def _row_slots(self) -> list[int]:
        return [row.slot for row in self._rows]

    def _places(self) -> int:
        """Return room that every row has in the cache: all of them write side by side with torch,
        behind the longest."""
        length = max(len(row.request.prompt) + len(row.ids) for row in self._rows)
        return length + max(row.request.max_new_tokens - len(row.ids) for row in self._rows)

    def _written(self, logits: Tensor) -> list[NewToken]:
        """Return the next token of every row; rows that end leave."""
        logits = logits.float()
        chosen = self._of_form(logits)
        self._newest = chosen.argmax(-1)
        drawn = [place for place, row in enumerate(self._rows) if row.request.generator]
        if drawn:
            self._newest[drawn] = _drawn(chosen[drawn], [self._rows[place] for place in drawn])
        log_probabilities = logits.log_softmax(-1)
        scores = log_probabilities.gather(1, self._newest[:, None])[:, 0].tolist()
        for row, token in zip(self._rows, self._newest.tolist(), strict=True):
            row.ids.append(token)
            if row.form:
                row.form.take(token)
        texts = self._codec.decode([row.ids for row in self._rows])
        told = [
            self._told(row, text, score, log_probabilities[place] if row.is_scored else None)
            for place, (row, text, score) in enumerate(zip(self._rows, texts, scores, strict=True))
        ]
        self._keep([not token.end for token in told])
        return told

    def _of_form(self, logits: Tensor) -> Tensor:
        """Return the logits to choose from: those of rows with a form are narrowed."""
        formed = [(place, row.form) for place, row in enumerate(self._rows) if row.form]
        if not formed:
            return logits
        chosen = logits.clone()
        for place, form in formed:
            form.narrow(chosen[place])
        return chosen

    def _told(self, row: _Row, text: str, score: float, everyone: Tensor | None) -> NewToken:
        """Return what is to be said of a row's newest token, which ends its text. ``everyone`` are
        the log-probabilities of all tokens, where the row asks for some."""
        decoding, token, end = row.request.decoding, row.ids[-1], ""
        cut = decoding.cut(text)
        if token in row.ends or cut != text:
            end = "stop"
        elif len(row.ids) == row.request.max_new_tokens:
            end = "length"
        ready = len(cut) if end else _ready(cut, decoding.stop)
        new_text = cut[row.shown : ready]
        row.shown = max(row.shown, ready)
        scored = () if everyone is None else self._scored(row, score, everyone)
        return NewToken(row.id, token, score, new_text, end, scored)

    def _scored(self, row: _Row, score: float, everyone: Tensor) -> tuple[ScoredToken, ...]:
        """Return a row's newest token and the most likely ones; nothing for one that ends it."""
        if row.ids[-1] in row.ends:
            return ()
        best, ids = everyone.topk(min(row.request.alternatives or 0, len(everyone)))
        pairs = zip([row.ids[-1], *ids.tolist()], [score, *best.tolist()], strict=True)
        spell, is_first = self._codec.spell, len(row.ids) == 1
        return tuple(ScoredToken(*spell(token, is_first=is_first), one) for token, one in pairs)

    def _keep(self, stays: Sequence[bool]) -> None:
        """Go on with these rows only."""
        if not all(stays):
            places = [place for place, stay in enumerate(stays) if stay]
            self._newest, self._is_full = self._newest[places], False
            self._arrange(places)

    def _arrange(self, places: Sequence[int]) -> None:
        """Go on with the rows at these places, in this order."""
        if places and self._session is not None:
            self._session.keep(torch.tensor(places, device=self._decoder.device))
        else:
            self._session, self._is_full = None, False
        self._rows = [self._rows[place] for place in places]


def _drawn(logits: Tensor, rows: Sequence[_Row]) -> Tensor:
    """Return tokens of rows that draw theirs."""
    uniforms = [row.request.generator.random() for row in rows if row.request.generator]
    knobs = [(row.request.decoding.temperature, row.request.decoding.top_p) for row in rows]
    numbers = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    columns = torch.tensor(knobs, dtype=torch.float64, device=logits.device).T
    temperature, top_p = columns[..., None]
    mass = top_p if bool((top_p < 1.0).any()) else 1.0
    return inverse_cdf(logits, numbers, temperature, mass)


def _ready(text: str, stops: Sequence[str]) -> int:
    """Letters that can be shown: what may become a stop text, or another letter, waits."""
    text, count = text.rstrip(UNSURE), 0
    for stop in stops:
        for size in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:size]):
                count = max(count, size)
                break
    return len(text) - count
