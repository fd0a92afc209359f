"""No variation."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Mutation, Parent, operators
from symbiont_ecology.weights import AdapterWeights


@operators.register("clone")
@dataclass(frozen=True)
class Clone(Mutation):
    """The parent's weights. What learning changes within a life leaves nothing that noise at birth
    would add (docs/log.md), so this is how an ecology breeds unless it is told otherwise."""

    def mutated(self, parent: Parent, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)
