"""Gaussian mutation in proportion to what is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat

from symbiont_ecology.operators import Mutation, Parent, operators
from symbiont_ecology.weights import AdapterWeights


@operators.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Mutation):
    """Adds noise to every factor, scaled to that factor's own root mean square (Such et al. 2017,
    arXiv:1712.06567, made scale-free), so that large and small modules are jittered alike.

    What this does to ΔW depends on how it is factored; ``svd_noise`` does not.
    """

    sigma: NonNegativeFloat = 0.02  # noise relative to the root mean square of each factor, >= 0

    def mutated(self, parent: Parent, generator: Generator) -> AdapterWeights:
        """The parent with noise; a factor that is all zero stays so."""
        child = parent.vector.copy()
        for _, a, b, _, _ in parent.layout.blocks(parent.rank):
            for part in (a, b):
                scale = np.float32(self.sigma * np.sqrt(np.mean(np.square(child[part]))))
                child[part] += scale * generator.standard_normal(
                    part.stop - part.start, dtype=np.float32
                )
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, child)
