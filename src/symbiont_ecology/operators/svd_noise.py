"""Mutation of how much an adapter does of each thing that it does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat

from symbiont_ecology.operators import Mutation, Parent, operators
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import spectrum


@operators.register("svd_noise")
@dataclass(frozen=True)
class SvdNoise(Mutation):
    """Jitters the singular values of ΔW and keeps their directions: the noise does not depend on
    how ΔW is factored, and a child moves within what its parent learned instead of into a random
    direction.

    A stays and B moves a little, in the parent's own coordinates: Adam's moments go on fitting.
    """

    sigma: NonNegativeFloat = 0.05  # std of the logarithm of every singular value, >= 0

    def mutated(self, parent: Parent, generator: Generator) -> AdapterWeights:
        """One draw per singular value; a parent that does nothing has a child that does nothing."""
        factors = {}
        for name, a, b in parent.factors():
            u, s, _ = spectrum(a.astype(np.float64), b.astype(np.float64))
            change = np.expm1(self.sigma * generator.standard_normal(len(s)))
            factors[name] = (a, b + (u * change) @ (u.T @ b))
        return AdapterWeights.from_factors(parent.layout, parent.rank, parent.scaling, factors)
