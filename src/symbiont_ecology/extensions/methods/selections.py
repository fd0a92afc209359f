"""Merges that select: each element of ΔW comes from one parent, both or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import dense, from_dense
from symbiont_ecology.adapters.operators import Merge, Parents, largest_rank, operators
from symbiont_ecology.base.registry import PositiveShare


@operators.register("dare")
@dataclass(frozen=True)
class Dare(Merge):
    """Drops most of what changed at random and rescales the rest (DARE, Yu et al. 2023,
    arXiv:2311.03099): on ΔW, module by module, then the mean, cut to the larger parent's rank.

    Before the cut, its expectation is the plain mean. Where each parent keeps few elements, fewer
    of them meet.
    """

    density: PositiveShare = 0.5  # chance of each element to be kept, in (0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        merged = ((name, self._merged(deltas, generator)) for name, deltas in dense(parents))
        return from_dense(parents[0].layout, largest_rank(parents), merged)

    def _merged(self, deltas: np.ndarray, generator: Generator) -> np.ndarray:
        """Reduce ``(parents, d_out, d_in)`` to ``(d_out, d_in)``."""
        mask = generator.random(deltas.shape) < self.density
        return np.asarray(np.mean(mask * deltas / self.density, axis=0))


@operators.register("ties")
@dataclass(frozen=True)
class Ties(Merge):
    """Trims, elects a sign, and averages those who agree (TIES, Yadav et al. 2023,
    arXiv:2306.01708): on ΔW, module by module, then cut to the larger parent's rank.

    Small changes are noise, and parents that pull an element in opposite directions should not meet
    in the middle.
    """

    density: PositiveShare = 0.2  # part of each parent's largest elements that is kept, in (0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        merged = ((name, self._merged(deltas)) for name, deltas in dense(parents))
        return from_dense(parents[0].layout, largest_rank(parents), merged)

    def _merged(self, deltas: np.ndarray) -> np.ndarray:
        """Reduce ``(parents, d_out, d_in)`` to ``(d_out, d_in)``."""
        sizes = np.abs(deltas).reshape(len(deltas), -1)
        count = max(int(self.density * sizes.shape[1]), 1)
        least = np.partition(sizes, -count, axis=1)[:, -count]
        trimmed = np.where(np.abs(deltas) >= least[:, None, None], deltas, 0.0)
        elected = np.where(trimmed.sum(axis=0) >= 0, 1.0, -1.0)
        agrees = trimmed * elected > 0
        total = np.sum(trimmed, axis=0, where=agrees)
        return np.asarray(total / np.maximum(agrees.sum(axis=0), 1))
