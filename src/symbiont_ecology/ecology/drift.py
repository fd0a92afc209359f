"""Whether the world has changed: nobody is told, but success then falls in many cells at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

LATELY, LEAST_VERDICTS, TIMES = 4, 8, 3
"""The last generations with news, at least so many and with so many verdicts, are compared with
``TIMES`` as many before them."""
LEAST_DOUBT = 0.05
"""Success rates are taken to be this far from 0 and 1: no verdict is beyond doubt."""


@dataclass(frozen=True)
class DriftDetector:
    """How many were right, of how many, in each of the last generations that asked in a cell."""

    seen: tuple[tuple[float, int], ...] = ()

    def after(self, verdicts: Sequence[float]) -> DriftDetector:
        """With one more generation; only those that can count are kept."""
        most = (1 + TIMES) * max(LATELY, LEAST_VERDICTS)
        return DriftDetector((*self.seen, (sum(verdicts), len(verdicts)))[-most:])

    @property
    def lately(self) -> float:
        """Success rate of late, as the mean under a uniform prior: 0.5 where nothing is known."""
        right, asked = self._compared[0]
        return (right + 1) / (asked + 2)

    @property
    def fall(self) -> float:
        """How far success fell of late, as a share of verdicts; negative where it rose, 0 while
        unknown."""
        (right, asked), (right_before, asked_before) = self._compared
        return right_before / asked_before - right / asked if asked_before else 0.0

    @cached_property
    def z_score(self) -> float:
        """The fall in standard errors of such a difference."""
        (_, asked), (right_before, asked_before) = self._compared
        if not asked_before:
            return 0.0
        rate = min(max(right_before / asked_before, LEAST_DOUBT), 1 - LEAST_DOUBT)
        return self.fall / math.sqrt(rate * (1 - rate) * (1 / asked + 1 / asked_before))

    @cached_property
    def _compared(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """How many were right, of how many, lately and before; of none before while little is
        known."""
        verdicts = accumulate(count for _, count in reversed(self.seen))
        enough = next(
            (n for n, total in enumerate(verdicts, 1) if total >= LEAST_VERDICTS), LEAST_VERDICTS
        )
        span = max(enough, LATELY)
        before = self.seen[-(1 + TIMES) * span : -span] if len(self.seen) > 2 * span else ()
        return _totals(self.seen[-span:]), _totals(before)


def drift_score(drift_detectors: Iterable[DriftDetector]) -> float:
    """How much further cells fell than chance explains, all together, in standard errors.

    A change of many cells shows within three generations, one of few cells later. A level of 8 is
    met by chance in no run; one of 5 in one of twenty (docs/log.md).
    """
    falls = [max(detector.z_score, 0.0) for detector in drift_detectors]
    # Of the positive part of N(0, 1).
    expected, variance = 1 / math.sqrt(2 * math.pi), 0.5 - 0.5 / math.pi
    return (sum(falls) - expected * len(falls)) / math.sqrt(variance * max(len(falls), 1))


def _totals(pairs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    rights, counts = zip(*pairs, strict=True) if pairs else ((), ())
    return sum(rights), sum(counts)
