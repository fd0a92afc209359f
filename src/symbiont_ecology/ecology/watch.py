"""Whether the world has changed: nobody is told, but success then falls in many cells at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LATELY, BEFORE = 4, 12
"""Generations with news that are compared with those before them."""
LEAST = 0.05
"""Success rates are taken to be this far from 0 and 1: no verdict is beyond doubt."""


@dataclass(frozen=True)
class Watch:
    """How many were right, of how many, in each of the last generations that asked in a cell."""

    seen: tuple[tuple[float, int], ...] = ()

    def after(self, verdicts: Sequence[float]) -> Watch:
        """With one more generation; only those that count are kept."""
        return Watch((*self.seen, (sum(verdicts), len(verdicts)))[-LATELY - BEFORE :])

    @property
    def fall(self) -> float:
        """How far success fell of late, as a share of verdicts; negative where it rose."""
        (lately, _), (before, _) = self._rates()
        return before - lately

    @property
    def surprise(self) -> float:
        """The fall in standard errors of such a difference."""
        (lately, recent), (before, earlier) = self._rates()
        rate = min(max(before, LEAST), 1 - LEAST)
        return (before - lately) / math.sqrt(rate * (1 - rate) * (1 / recent + 1 / earlier))

    def _rates(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """Success rate and number of verdicts, lately and before; alike while little is known."""
        if len(self.seen) <= 2 * LATELY:
            return (0.0, 1), (0.0, 1)
        return _rate(self.seen[-LATELY:]), _rate(self.seen[:-LATELY])


def alarm(watches: Iterable[Watch]) -> float:
    """How much further cells fell than chance explains, all together, in standard errors.

    A change of many cells shows within three generations, one of few cells later. On the embedded host a
    level of 8 was met by chance in no run (docs/log.md), however many verdicts a generation has.
    """
    falls = [max(watch.surprise, 0.0) for watch in watches]
    expected, variance = 1 / math.sqrt(2 * math.pi), 0.5 - 0.5 / math.pi  # of the positive part of N(0, 1)
    return (sum(falls) - expected * len(falls)) / math.sqrt(variance * max(len(falls), 1))


def _rate(seen: Sequence[tuple[float, int]]) -> tuple[float, int]:
    asked = sum(count for _, count in seen)
    return sum(right for right, _ in seen) / asked, asked
