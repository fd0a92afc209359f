"""What is believed of an organelle in a cell: counts of what it showed there, the old ones
fading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SuccessPosterior:
    """Discounted counts of successes and failures of one organelle in one cell."""

    successes: float = 0.0
    failures: float = 0.0

    @property
    def mean(self) -> float:
        """Posterior mean success rate under a uniform prior."""
        return (self.successes + 1) / (self.successes + self.failures + 2)

    @property
    def std(self) -> float:
        """Posterior standard deviation of the success rate."""
        mean = self.mean
        return math.sqrt(mean * (1 - mean) / (self.successes + self.failures + 3))

    @property
    def bound(self) -> float:
        """A success rate that is probably exceeded: one standard deviation below the mean, > 0."""
        return self.mean - self.std

    def faded(self, fade: float, verdicts: Sequence[float]) -> SuccessPosterior:
        """After news: old counts count ``fade`` as much, the new verdicts are added."""
        wins = sum(verdicts)
        return SuccessPosterior(
            fade * self.successes + wins, fade * self.failures + len(verdicts) - wins
        )

    def discounted(self, share: float) -> SuccessPosterior:
        """The same rate, on part of the evidence."""
        return SuccessPosterior(share * self.successes, share * self.failures)
