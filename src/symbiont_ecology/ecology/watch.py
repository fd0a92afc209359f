"""Whether the world has changed: nobody is told, but success then falls in many cells at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

LATELY, LEAST_VERDICTS, TIMES = 4, 8, 3
"""The last generations with news, at least so many and with so many verdicts, are compared with ``TIMES`` as
many before them."""
LEAST = 0.05
"""Success rates are taken to be this far from 0 and 1: no verdict is beyond doubt."""


@dataclass(frozen=True)
class Watch:
    """How many were right, of how many, in each of the last generations that asked in a cell."""

    seen: tuple[tuple[float, int], ...] = ()

    def after(self, verdicts: Sequence[float]) -> Watch:
        """With one more generation; only those that can count are kept."""
        most = (1 + TIMES) * max(LATELY, LEAST_VERDICTS)
        return Watch((*self.seen, (sum(verdicts), len(verdicts)))[-most:])

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare."""
        return len(self.seen) > 2 * self._late

    @cached_property
    def lately(self) -> float:
        """Success rate of late, as the mean under a uniform prior: 0.5 where nothing is known."""
        recent = self.seen[-self._late :]
        return sum((right for right, _ in recent), 1.0) / sum((asked for _, asked in recent), 2)

    @property
    def fall(self) -> float:
        """How far success fell of late, as a share of verdicts; negative where it rose."""
        (lately, _), (before, _) = self._rates()
        return before - lately

    @cached_property
    def surprise(self) -> float:
        """The fall in standard errors of such a difference."""
        (lately, recent), (before, earlier) = self._rates()
        rate = min(max(before, LEAST), 1 - LEAST)
        return (before - lately) / math.sqrt(rate * (1 - rate) * (1 / recent + 1 / earlier))

    def _rates(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """Success rate and number of verdicts, lately and before; alike while little is known."""
        if not self.is_known:
            return (0.0, 1), (0.0, 1)
        late = self._late
        return _rate(self.seen[-late:]), _rate(self.seen[-(1 + TIMES) * late : -late])

    @cached_property
    def _late(self) -> int:
        """How many generations with news are the last ones."""
        verdicts = accumulate(count for _, count in reversed(self.seen))
        enough = next((n for n, total in enumerate(verdicts, 1) if total >= LEAST_VERDICTS), LEAST_VERDICTS)
        return max(enough, LATELY)


def alarm(watches: Iterable[Watch]) -> float:
    """How much further cells fell than chance explains, all together, in standard errors.

    A change of many cells shows within three generations, one of few cells later. A level of 8 is
    met by chance in no run; one of 5 in one of twenty (docs/log.md).
    """
    falls = [max(watch.surprise, 0.0) for watch in watches]
    expected, variance = 1 / math.sqrt(2 * math.pi), 0.5 - 0.5 / math.pi  # of the positive part of N(0, 1)
    return (sum(falls) - expected * len(falls)) / math.sqrt(variance * max(len(falls), 1))


def _rate(seen: Sequence[tuple[float, int]]) -> tuple[float, int]:
    asked = sum(count for _, count in seen)
    return sum(right for right, _ in seen) / asked, asked
