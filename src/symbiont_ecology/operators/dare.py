"""Drop most of what changed at random and rescale the rest (DARE, Yu et al. 2023,
arXiv:2311.03099)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import dense, from_dense


@operators.register("dare")
@dataclass(frozen=True)
class Dare(Merge):
    """On ΔW, module by module, then the mean, cut to the larger parent's rank. Before the cut the
    plain mean is what to expect; with few elements each, parents get into each other's way less."""

    density: PositiveShare = 0.5  # chance of each element to be kept, in (0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """One draw per element."""
        merged = ((name, self._merged(deltas, generator)) for name, deltas in dense(parents))
        return from_dense(parents[0].layout, max(parent.rank for parent in parents), merged)

    def _merged(self, deltas: np.ndarray, generator: Generator) -> np.ndarray:
        """``(parents, d_out, d_in)`` to ``(d_out, d_in)``."""
        kept = generator.random(deltas.shape) < self.density
        return np.asarray(np.mean(kept * deltas / self.density, axis=0))
