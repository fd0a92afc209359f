"""The rows of a call: which slot each of them belongs to, and whether they fit into the host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from numbers import Integral

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.registry import MAX_SLOTS

Replies = Sequence[tuple[np.ndarray, Sequence[int]]]
"""Prompts and what was answered to each, as token ids."""


def slot_of_each(slots: int | Sequence[int], prompts: Sequence[object]) -> list[int]:
    """One slot per row, where all rows may share one.

    Raises:
        HostError: one text came instead of a list, or not as many slots as prompts.
    """
    if isinstance(prompts, str):
        raise HostError("expected a list of prompts, got one text: put it in a list")
    if isinstance(slots, int | Integral):
        return [int(slots)] * len(prompts)
    if len(slots) != len(prompts):
        raise HostError(f"expected one slot for each of {len(prompts)} prompts, got {len(slots)}")
    return [int(slot) for slot in slots]


def check_sizes(slots: int, rank: int, memory_mb: float) -> None:
    """Whether a kernel may have so many slots of that rank, and so much memory.

    Raises:
        HostError: it may not.
    """
    if slots < 1 or rank < 1:
        raise HostError(f"expected at least one slot of rank 1, got slots={slots} rank={rank}")
    if slots > MAX_SLOTS:
        raise HostError(f"expected at most {MAX_SLOTS} slots, got slots={slots}: lower them")
    if not memory_mb > 0:
        raise HostError(f"expected memory_mb > 0, got {memory_mb}")


def check_lengths(shape: HostShape, prompts: Iterable[int], answers: Iterable[int]) -> None:
    """Whether every prompt has room for its answer; both are numbers of tokens.

    Raises:
        HostError: one has not.
    """
    longest = max((sum(pair) for pair in zip(prompts, answers, strict=True)), default=0)
    if longest > shape.max_positions:
        raise HostError(
            f"expected at most {shape.max_positions} tokens for prompt and answer, "
            f"got {longest}: shorten the prompt or max_new_tokens"
        )


def draws_of(
    draws: Sequence[np.random.Generator | None] | None, rows: int, *, is_drawn: bool
) -> Sequence[np.random.Generator | None]:
    """One generator per row, None for those that draw nothing.

    Raises:
        ValueError: something is drawn, and there are not as many generators as rows.
    """
    if not is_drawn:
        return [None] * rows
    if draws is None or len(draws) != rows:
        raise ValueError(
            f"expected one generator for each of {rows} sampled rows, got {draws and len(draws)}"
        )
    return draws


def find_slot(
    weights: AdapterWeights, held: Sequence[AdapterWeights | None], used: Collection[int]
) -> int | None:
    """Where an adapter stands, or else where it may stand: an empty slot first, then one that
    nobody uses. None if all are in use."""
    for slot, adapter in enumerate(held):
        if adapter is weights:
            return slot
    free = [slot for slot in range(len(held)) if slot not in used]
    empty = [slot for slot in free if held[slot] is None]
    return next(iter(empty or free), None)
