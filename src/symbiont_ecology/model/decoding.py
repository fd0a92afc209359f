"""Writing answers: the whole population in one batch, token after token.

A row's draws are uniform numbers taken from its own generator before the first token, so its text
does not depend on its neighbours. Rows that have ended leave the batch when the smaller batch is
worth it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.base.types import Completions, Decoding, Request
from symbiont_ecology.model.backend.bank import SlotBank
from symbiont_ecology.model.backend.lowrank import Adapters, Shares, Tiling
from symbiont_ecology.model.budget import MemoryBudget
from symbiont_ecology.model.codec import TextCodec
from symbiont_ecology.model.decoder import Decoder, Prefill, Session

WORTH_SHRINKING = 0.75
"""Ended rows leave once the rest costs at most this part of the batch: with torch, that is a
copy."""


class Observer(Protocol):
    """Sees the low-rank terms at work while answers are written, and may put others in their place.

    The prompt's last token is then a step of its own, so that every token is written by one.
    """

    def __call__(self, rows: np.ndarray, step: int, adapters: Adapters, tiling: Tiling) -> Adapters:
        """Return the terms for the step in which rows of the batch, given by their numbers, write
        their token number ``step``. The terms of torch (``Factors``) come for rows in tiles."""
        ...


@dataclass
class Writer:
    """Writes rows: one prompt (token ids) for each.

    ``uniforms (rows, new_tokens)`` are numbers in [0, 1), NaN where a row is greedy; None if all
    are.
    """

    decoder: Decoder
    bank: SlotBank
    codec: TextCodec
    budget: MemoryBudget
    rows: Sequence[Request]
    prompts: Sequence[np.ndarray]
    uniforms: np.ndarray | None
    decoding: Decoding
    observer: Observer | None = None

    def __post_init__(self) -> None:
        self._limits = np.array([row.max_new_tokens for row in self.rows], dtype=np.int64)
        size = len(self.rows), int(self._limits.max(initial=0))
        self._ids, self._scores = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.float32)
        # Tokens of the answer, and prompt and new tokens that went through the host.
        self._lengths, self._read, self._fed = np.zeros((3, size[0]), dtype=np.int64)

    def completions(self) -> Completions:
        """Return answers in the order of the rows."""
        with torch.inference_mode():
            for rows in self._waves():
                self._write(rows)
        parts = self._ids, self._scores, self._lengths, self._read, self._fed
        return completions_of(self.codec, self.decoding, self.prompts, *parts)

    def _waves(self) -> Iterator[np.ndarray]:
        """Return row numbers, sorted by slot and what is read, in equal batches that fit the
        budget."""

        def key(row: int) -> tuple[int, bytes, bytes]:
            return self.rows[row].slot, self._reads(row).tobytes(), self.prompts[row].tobytes()

        order = sorted(np.flatnonzero(self._limits).tolist(), key=key)
        if order:
            longest = max(len(self.prompts[row]) + self._limits[row] for row in order)
            yield from np.array_split(order, -(-len(order) // self.budget.rows(int(longest))))

    def _reads(self, row: int) -> np.ndarray:
        """Return what is read of a prompt before the first step."""
        return self.prompts[row] if self.observer is None else self.prompts[row][:-1]

    def _write(self, rows: np.ndarray) -> None:
        """Writes some rows, sorted as ``_waves`` does, from their prompts to their ends."""
        ends = np.array(sorted(self.codec.ends_of(self.decoding.stop)))
        room = int(self._limits[rows].max())
        is_live = np.ones(len(rows), dtype=bool)
        (adapters, shares) = self._adapters(rows)
        logits, session = self._start(rows, room, adapters, shares)
        for time in range(room):
            tokens, log_probabilities = self._choose(logits, time, rows)
            token_ids = tokens.cpu().numpy()
            live = rows[is_live]
            self._ids[live, time] = token_ids[is_live]
            self._scores[live, time] = log_probabilities.cpu().numpy()[is_live]
            self._lengths[live] = time + 1
            is_live &= ~(token_ids[:, None] == ends).any(axis=1) & (self._limits[rows] > time + 1)
            if self.decoding.stop:
                is_live[is_live] = [not self._has_stopped(row, time + 1) for row in rows[is_live]]
            if not is_live.any():
                break
            if is_live.sum() <= WORTH_SHRINKING * len(rows):
                indices = torch.from_numpy(np.flatnonzero(is_live)).to(tokens.device)
                rows, is_live = rows[is_live], np.ones(int(is_live.sum()), dtype=bool)
                session.keep(indices)
                tokens = tokens[indices]
                (adapters, shares) = self._adapters(rows)
            self._fed[rows] += 1
            adapters_now = self._observed(adapters, rows, time + 1, shares)
            logits = session.step(tokens, adapters_now, shares)

    def _start(
        self, rows: np.ndarray, room: int, adapters: Adapters, shares: Shares
    ) -> tuple[Tensor, Session]:
        """Reads the prompts; first logits ``(rows, vocab)``."""
        prompts = [self.prompts[row] for row in rows]
        slots = [self.rows[row].slot for row in rows]
        room += max(map(len, prompts))
        reads = [self._reads(row) for row in rows]
        logits, session = self.decoder.start(Prefill(reads, slots, room, self.bank, self.budget))
        self._read[rows] = session.tokens_read
        if self.observer is not None:
            self._read[rows] += session.tokens_read > 0
            last = torch.tensor([prompt[-1] for prompt in prompts], device=self.decoder.device)
            logits = session.step(last, self._observed(adapters, rows, 0, shares), shares)
        return logits, session

    def _adapters(self, rows: np.ndarray) -> tuple[Adapters, Shares]:
        """Return the adapters of some rows, sorted by slot, and which rows are whose."""
        slots = [self.rows[row].slot for row in rows]
        return self.bank.for_step(slots) if self.observer is None else self.bank.in_tiles(slots)

    def _observed(
        self, adapters: Adapters, rows: np.ndarray, step: int, shares: Shares
    ) -> Adapters:
        if self.observer is None:
            return adapters
        assert isinstance(shares, Tiling)
        return self.observer(rows, step, adapters, shares)

    def _has_stopped(self, row: int, length: int) -> bool:
        """Return True if a row holds a stop text among its first ``length`` tokens."""
        text = self.codec.decode([self._ids[row, :length].tolist()])[0]
        return any(stop in text for stop in self.decoding.stop)

    def _choose(self, logits: Tensor, time: int, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return tokens ``(rows,)`` and their log-probabilities under the model itself, from
        ``(rows, vocab)``."""
        logits = logits.float()
        decoding = self.decoding
        allowed = logits
        ends = self.codec.end_tokens
        if time < decoding.min_new_tokens and ends:
            allowed = logits.index_fill(1, torch.tensor(ends, device=logits.device), -torch.inf)
        tokens = allowed.argmax(-1)
        if self.uniforms is not None:
            uniforms = torch.from_numpy(self.uniforms[rows, time]).to(logits.device)
            draw = uniforms.nan_to_num(), decoding.temperature, decoding.top_p
            tokens = torch.where(uniforms.isnan(), tokens, inverse_cdf(allowed, *draw))
        return tokens, -F.cross_entropy(logits, tokens, reduction="none")


def uniforms_of(
    draws: Sequence[np.random.Generator | None], limits: Sequence[int]
) -> np.ndarray | None:
    """Return as many numbers from each row's generator as it may have tokens, as in ``Writer``."""
    if not any(draws):
        return None
    uniforms = np.full((len(draws), max(limits)), np.nan)
    for row, (draw, limit) in enumerate(zip(draws, limits, strict=True)):
        if draw is not None:
            uniforms[row, :limit] = draw.random(limit)
    return uniforms


def completions_of(
    codec: TextCodec,
    decoding: Decoding,
    prompts: Sequence[np.ndarray],
    ids: np.ndarray,
    scores: np.ndarray,
    lengths: np.ndarray,
    read: np.ndarray | None = None,
    fed: np.ndarray | None = None,
) -> Completions:
    """Return answers with their texts: token ids and log-probabilities ``(rows, tokens)``, of which
    ``lengths (rows,)`` count; ``read`` and ``fed`` are those of ``Completions``."""
    pairs = zip(ids.tolist(), lengths, strict=True)
    rows = [row[:length] for row, length in pairs]
    whole = codec.decode(rows)
    texts = tuple(map(decoding.cut, whole))
    stops = codec.ends_of(decoding.stop).difference(codec.end_tokens)
    stopped = np.array(
        [
            text != cut or not stops.isdisjoint(row[-1:])
            for row, text, cut in zip(rows, whole, texts, strict=True)
        ]
    )
    sizes = np.array([len(prompt) for prompt in prompts])
    return Completions(texts, ids, scores, lengths, sizes, read, fed, stopped)


def inverse_cdf(
    logits: Tensor, uniforms: Tensor, temperature: float | Tensor, top_p: float | Tensor
) -> Tensor:
    """Return one token per row: where the cumulative distribution within ``top_p`` passes the
    uniform number (nucleus: arXiv:1904.09751).

    In double precision: a single-precision sum over a large vocabulary is off by more than a rare
    token.

    Args:
        logits: ``(rows, vocab)``.
        uniforms: ``(rows,)``, in [0, 1).
        temperature: above 0; one for all rows, or ``(rows, 1)``.
        top_p: in (0, 1]; one for all rows, or ``(rows, 1)``.
    """
    weights = torch.softmax(logits.double() / temperature, dim=-1)
    if isinstance(top_p, Tensor) or top_p < 1.0:
        ranked, order = weights.sort(dim=-1, descending=True, stable=True)
        is_out = ranked.cumsum(-1) - ranked >= top_p  # the first token is always in
        weights = weights.masked_fill(is_out.gather(-1, order.argsort(-1)), 0.0)
    cumulative = weights.cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    # The first place beyond the target has weight > 0; rounding may push the target to the very
    # end.
    place = torch.searchsorted(cumulative, target, right=True)[:, 0]
    # To ask a GPU takes longer than to do it always.
    if not place.is_cpu or bool((place == weights.shape[-1]).any()):
        place = torch.minimum(place, (weights > 0).long().cumsum(-1).argmax(-1))
    return place
