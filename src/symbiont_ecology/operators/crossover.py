"""Uniform crossover of modules (Syswerda 1989)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.operators import operators
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import grown, modules


@operators.register("crossover")
@dataclass(frozen=True)
class Crossover:
    """Every module's whole ΔW comes from one parent or the other, at the larger parent's rank:
    exchanging parts of factors would mix coordinates that mean different things."""

    arity: ClassVar[int] = 2

    def __call__(
        self, parents: Sequence[AdapterWeights], generator: np.random.Generator
    ) -> AdapterWeights:
        """One draw per module."""
        rank = max(one.rank for one in parents)
        equals = [grown(one, rank, generator) for one in parents]
        factors = {name: parts[generator.integers(2)] for name, parts in modules(equals)}
        return AdapterWeights.from_factors(parents[0].layout, rank, 1.0, factors)
