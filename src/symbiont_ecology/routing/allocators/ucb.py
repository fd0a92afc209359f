"""Optimism: each question goes to whoever could be the best (discounted UCB, Garivier & Moulines
2011)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat

from symbiont_ecology.routing.allocators import Allocator, Posteriors, allocators


@allocators.register("ucb")
@dataclass(frozen=True)
class UpperBound(Allocator):
    """Believed success plus a bonus for what has been tried little, on counts that fade."""

    bonus: NonNegativeFloat = 0.5  # weight of √(log n ÷ nᵢ), >= 0
    fade: ClassVar[float] = 0.8

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """What was just given counts as tried, and ties are drawn."""
        tried = zip(known, given, strict=True)
        counts = np.array(
            [1 + posterior.successes + posterior.failures + more for posterior, more in tried]
        )
        bounds = np.array([posterior.mean for posterior in known])
        bounds += self.bonus * np.sqrt(np.log(counts.sum()) / counts)
        return int(np.argmax(bounds + 1e-9 * generator.random(len(known))))
