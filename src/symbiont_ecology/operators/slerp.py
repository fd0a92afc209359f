"""Along the great circle between two parents (Shoemake 1985)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import Share
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined, inner, truncated


@operators.register("slerp")
@dataclass(frozen=True)
class Slerp(Merge):
    """Module by module, the direction turns from the first parent's ΔW to the second's and the
    length changes in proportion; cut to the larger parent's rank. Unlike the mean, it does not
    shrink what the parents disagree about."""

    at: Share = 0.5  # how far from the first parent to the second, in [0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        one, other = parents
        overlaps, squares, others = inner(one, other), inner(one, one), inner(other, other)
        shares = {
            name: self._shares(squares[name], others[name], overlap)
            for name, overlap in overlaps.items()
        }
        return truncated(combined(parents, shares), max(one.rank, other.rank))

    def _shares(self, square: float, other_square: float, overlap: float) -> tuple[float, float]:
        """Of the two ΔW of a module, from their squared lengths and inner product."""
        one, other = (math.sqrt(max(value, 0.0)) for value in (square, other_square))
        cosine = overlap / (one * other) if one and other else 1.0
        angle = math.acos(min(max(cosine, -1.0), 1.0))
        if math.sin(angle) < 1e-4:  # along one line: no turning is needed, or none is determined
            return 1 - self.at, self.at
        length = (1 - self.at) * one + self.at * other
        return (
            length * math.sin((1 - self.at) * angle) / math.sin(angle) / one,
            length * math.sin(self.at * angle) / math.sin(angle) / other,
        )
