"""Which slot each row of a call belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from symbiont_ecology.errors import HostError


def slot_of_each(slots: int | Sequence[int], prompts: Sequence[str]) -> list[int]:
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
