"""The weighted mean of what two parents do, as near as the larger parent's rank allows."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import Share
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined, truncated


@operators.register("svd")
@dataclass(frozen=True)
class Svd(Merge):
    """``linear``, cut to the larger parent's rank where its spectrum is longest (Eckart & Young
    1936): generations of merges do not grow."""

    share: Share = 0.5  # of the first parent, in [0, 1]; the second has the rest

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        mean = combined(parents, (self.share, 1 - self.share))
        return truncated(mean, max(parent.rank for parent in parents))
