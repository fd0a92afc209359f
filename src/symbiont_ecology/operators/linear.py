"""The weighted mean of what two parents do, without loss."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import Share
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined


@operators.register("linear")
@dataclass(frozen=True)
class LinearMerge(Merge):
    """Weighted mean of ΔW (model soups, Wortsman et al. 2022, arXiv:2203.05482), at the sum of the
    ranks.

    Averages of A and of B would be the average of nothing: for parents at right angles to each
    other they miss the mean of ΔW by 71 % of its length.
    """

    share: Share = 0.5  # of the first parent, in [0, 1]; the second has the rest

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        return combined(parents, (self.share, 1 - self.share))
