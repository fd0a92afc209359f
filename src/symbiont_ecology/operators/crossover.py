"""Uniform crossover of modules (Syswerda 1989)."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import grown, modules


@operators.register("crossover")
@dataclass(frozen=True)
class Crossover(Merge):
    """Every module's whole ΔW comes from one parent or the other, at the larger parent's rank:
    exchanging parts of factors would mix coordinates that mean different things."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """One draw per module."""
        rank = max(parent.rank for parent in parents)
        equals = [grown(one, rank, generator) for one in parents]
        factors = {name: parts[generator.integers(2)] for name, parts in modules(equals)}
        return AdapterWeights.from_factors(parents[0].layout, rank, 1.0, factors)
