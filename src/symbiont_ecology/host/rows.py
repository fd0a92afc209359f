"""The rows of a call: which slot each of them belongs to, and whether they fit into the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral

from symbiont_ecology.economics import HostShape
from symbiont_ecology.errors import HostError


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
