"""Mutations: a parent's weights to a child's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import spectrum
from symbiont_ecology.adapters.operators import Mutation, operators


@operators.register("clone")
@dataclass(frozen=True)
class Clone(Mutation):
    """The parent's weights. Where organelles learn, noise at birth adds nothing (docs/log.md), so
    this is how an ecology breeds by default."""

    def mutated(self, parent: AdapterWeights, generator: Generator) -> AdapterWeights:
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)


@operators.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Mutation):
    """Adds noise to every factor, scaled to that factor's own root mean square (Such et al. 2017,
    arXiv:1712.06567, made scale-free), so that large and small modules are jittered alike.

    What this does to ΔW depends on how it is factored; ``svd_noise`` does not.
    """

    sigma: NonNegativeFloat = 0.02  # noise relative to the root mean square of each factor, >= 0
    is_absolute: bool = False  # whether sigma is the standard deviation itself, for all factors

    def mutated(self, parent: AdapterWeights, generator: Generator) -> AdapterWeights:
        child = parent.vector.copy()
        for _, a, b, _, _ in parent.layout.blocks(parent.rank):
            for part in (a, b):
                size = 1.0 if self.is_absolute else np.sqrt(np.mean(np.square(child[part])))
                scale = np.float32(self.sigma * size)
                child[part] += scale * generator.standard_normal(
                    part.stop - part.start, dtype=np.float32
                )
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, child)


@operators.register("svd_noise")
@dataclass(frozen=True)
class SvdNoise(Mutation):
    """Jitters the singular values of ΔW and keeps their directions: the noise does not depend on
    how ΔW is factored, and a child moves within what its parent learned instead of into a random
    direction.

    A stays and B moves a little, in the parent's own coordinates: Adam's moments go on fitting.
    """

    sigma: NonNegativeFloat = 0.05  # std of the logarithm of every singular value, >= 0

    def mutated(self, parent: AdapterWeights, generator: Generator) -> AdapterWeights:
        factors = {}
        for name, a, b in parent.factors():
            u, s, _ = spectrum(a.astype(np.float64), b.astype(np.float64))
            change = np.expm1(self.sigma * generator.standard_normal(len(s)))
            factors[name] = (a, b + (u * change) @ (u.T @ b))
        return AdapterWeights.from_factors(parent.layout, parent.rank, parent.scaling, factors)
