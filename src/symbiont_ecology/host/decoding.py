"""Writing answers: the whole population in one batch, token after token.

A row's draws are uniform numbers taken from its own generator before the first token and turned
into tokens by the inverse of the cumulative distribution, so a row's text does not depend on its
neighbours. Rows that have ended leave the batch when the smaller batch is worth it. Nucleus:
arXiv:1904.09751.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, SlotBank
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.lowrank import Shares
from symbiont_ecology.host.slot_tiles import tile_rows
from symbiont_ecology.host.tracing import Tracer
from symbiont_ecology.types import Decoding

WORTH_SHRINKING = 0.75
"""Ended rows leave once the rest costs at most this part of the batch: with torch, that is a
copy."""


@dataclass(frozen=True)
class DecodingBatch:
    """What to write, one entry per row. ``uniforms[i]``: ``limits[i]`` numbers in [0, 1); None is
    greedy."""

    prompts: Sequence[np.ndarray]
    slots: Sequence[int]
    limits: Sequence[int]
    uniforms: Sequence[np.ndarray | None] | None
    decoding: Decoding
    end_tokens: tuple[int, ...]
    text: Callable[[Sequence[int]], str]  # of token ids, to look for stop texts
    tracer: Tracer | None = None


@dataclass
class Written:
    """Growing answers ``(rows, new_tokens)``, filled in place by row number.

    ``read`` and ``fed`` are the prompt and new tokens of each row that went through the host.
    """

    ids: np.ndarray
    log_probabilities: np.ndarray
    lengths: np.ndarray
    read: np.ndarray
    fed: np.ndarray


def write(
    decoder: Decoder, bank: SlotBank, request: DecodingBatch, budget: MemoryBudget
) -> Written:
    """Answers in the order of the request."""
    rows, longest = len(request.prompts), max(request.limits, default=0)
    out = Written(
        np.zeros((rows, longest), dtype=np.int64),
        np.zeros((rows, longest), dtype=np.float32),
        *(np.zeros(rows, dtype=np.int64) for _ in range(3)),
    )
    with torch.inference_mode():
        for wave in _waves(request, budget):
            _write_wave(decoder, bank, request, wave, budget.forward_tokens, out)
    return out


def _waves(request: DecodingBatch, budget: MemoryBudget) -> Iterator[np.ndarray]:
    """Row numbers, sorted by slot and prompt, in equal batches that fit the budget."""
    wanted = [row for row, limit in enumerate(request.limits) if limit > 0]
    if not wanted:
        return
    order = sorted(wanted, key=lambda row: (request.slots[row], request.prompts[row].tobytes()))
    longest = max(len(request.prompts[row]) + request.limits[row] for row in order)
    yield from np.array_split(order, -(-len(order) // budget.rows(longest)))


def _write_wave(
    decoder: Decoder,
    bank: SlotBank,
    request: DecodingBatch,
    rows: np.ndarray,
    max_tokens: int,
    out: Written,
) -> None:
    """Writes some rows of the request, sorted as ``_waves`` does, from their prompts to their
    ends."""
    limits, ends = np.asarray(request.limits, dtype=np.int64), np.array(request.end_tokens)
    prompts, slots = [request.prompts[row] for row in rows], [request.slots[row] for row in rows]
    keys = [(slot, prompt.tobytes()) for slot, prompt in zip(slots, prompts, strict=True)]
    is_new = np.array(
        [True, *(one != before for before, one in pairwise(keys))]
    )  # the others share it
    out.read[rows] = np.where(is_new, [len(prompt) for prompt in prompts], 0)
    room, is_live = int(limits[rows].max()), np.ones(len(rows), dtype=bool)
    adapters, shares = _arranged(slots, bank, request, decoder.device)
    if request.tracer is None:
        logits, session = decoder.start(prompts, slots, bank, room, max_tokens)
    else:  # what follows a prompt is traced too, so its last token is a step of its own
        _, session = decoder.start([one[:-1] for one in prompts], slots, bank, room + 1, max_tokens)
        request.tracer.move(rows, 0, shares)
        last = torch.tensor([one[-1] for one in prompts], device=decoder.device)
        logits = session.step(last, adapters, shares)
    chooser = _Chooser(request, decoder.device)
    for time in range(room):
        tokens, log_probabilities = chooser.choose(logits, time, rows)
        chosen, live = tokens.cpu().numpy(), rows[is_live]
        out.ids[live, time] = chosen[is_live]
        out.log_probabilities[live, time] = log_probabilities.cpu().numpy()[is_live]
        out.lengths[live] = time + 1
        is_live &= ~(chosen[:, None] == ends).any(axis=1) & (limits[rows] > time + 1)
        if request.decoding.stop:
            is_live[is_live] = ~_has_stopped(request, out, rows[is_live], time + 1)
        if not is_live.any():
            return
        if is_live.sum() <= WORTH_SHRINKING * len(rows):
            kept = torch.from_numpy(np.flatnonzero(is_live)).to(decoder.device)
            rows, is_live = rows[is_live], np.ones(int(is_live.sum()), dtype=bool)
            session.keep(kept)
            tokens = tokens[kept]
            adapters, shares = _arranged(
                [request.slots[row] for row in rows], bank, request, decoder.device
            )
        if request.tracer is not None:
            request.tracer.move(rows, time + 1, shares)
        out.fed[rows] += 1
        logits = session.step(tokens, adapters, shares)


def _arranged(
    slots: Sequence[int], bank: SlotBank, request: DecodingBatch, device: torch.device
) -> tuple[Adapters, Shares]:
    """The adapters of rows that belong to these slots (ascending), and which rows are whose."""
    if request.tracer is None and not bank.needs_tiles:
        counts = Counter(slots)
        return bank.gather(tuple(counts)), tuple(counts.values())
    tiling = tile_rows(slots, device)
    adapters = bank.gather_tiles(tiling.slots)
    return adapters.perturbed(request.tracer), tiling


def _has_stopped(request: DecodingBatch, out: Written, rows: np.ndarray, length: int) -> np.ndarray:
    """Which of these rows hold a stop text among their first ``length`` tokens."""
    texts = [request.text(out.ids[row, :length].tolist()) for row in rows]
    return np.array(
        [any(stop in text for stop in request.decoding.stop) for text in texts], dtype=bool
    )


class _Chooser:
    """Turns logits into tokens: greedy, or by inverse cumulative distribution with pre-drawn
    numbers."""

    def __init__(self, request: DecodingBatch, device: torch.device) -> None:
        self._decoding = request.decoding
        self._ends = torch.tensor(request.end_tokens, dtype=torch.int64, device=device)
        self._uniforms: np.ndarray | None = None
        if request.uniforms is not None:
            self._uniforms = np.full((len(request.uniforms), max(request.limits)), np.nan)
            for target, numbers in zip(self._uniforms, request.uniforms, strict=True):
                if numbers is not None:
                    target[: len(numbers)] = numbers

    def choose(self, logits: Tensor, time: int, source: np.ndarray) -> tuple[Tensor, Tensor]:
        """Tokens ``(rows,)`` and their log-probabilities under the model itself, from
        ``(rows, vocab)``."""
        logits = logits.float()
        allowed = logits
        if time < self._decoding.min_new_tokens and len(self._ends):
            allowed = logits.index_fill(1, self._ends, -torch.inf)
        tokens = allowed.argmax(-1)
        if self._uniforms is not None:
            uniforms = torch.from_numpy(self._uniforms[source, time]).to(logits.device)
            drawn = _inverse_cdf(allowed, uniforms.nan_to_num(), self._decoding)
            tokens = torch.where(uniforms.isnan(), tokens, drawn)
        return tokens, -F.cross_entropy(logits, tokens, reduction="none")


def _inverse_cdf(logits: Tensor, uniforms: Tensor, decoding: Decoding) -> Tensor:
    """One token per row: where the cumulative distribution within ``top_p`` passes the uniform
    number.

    In double precision: a single-precision sum over a large vocabulary is off by more than a rare
    token.
    """
    weights = torch.softmax(logits.double() / decoding.temperature, dim=-1)
    if decoding.top_p < 1.0:
        ranked, order = weights.sort(dim=-1, descending=True, stable=True)
        is_out = ranked.cumsum(-1) - ranked >= decoding.top_p  # the first token is always in
        weights = weights.masked_fill(is_out.gather(-1, order.argsort(-1)), 0.0)
    cumulative = weights.cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    # The first place beyond the target has weight > 0; rounding may push the target to the very
    # end.
    place = torch.searchsorted(cumulative, target, right=True)[:, 0]
    last = (weights > 0).long().cumsum(-1).argmax(-1)
    return torch.minimum(place, last)
