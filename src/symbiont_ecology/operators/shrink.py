"""The same adapter, turned down."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Mutation, Parent, operators
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.weights import AdapterWeights


@operators.register("shrink")
@dataclass(frozen=True)
class Shrink(Mutation):
    """ΔW times ``share``: on the way back to the host, which is at 0 (WiSE-FT, Wortsman et al.
    2022, arXiv:2109.01903)."""

    share: PositiveShare = 0.7  # of ΔW that is kept, in (0, 1]

    def mutated(self, parent: Parent, generator: Generator) -> AdapterWeights:
        """No draw is made. A and B stay as they are, so their memory still fits."""
        return AdapterWeights(
            parent.layout, parent.rank, self.share * parent.scaling, parent.vector
        )
