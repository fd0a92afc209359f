"""Trim, elect a sign, and average those who agree (TIES, Yadav et al. 2023, arXiv:2306.01708)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import PositiveShare
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import dense, from_dense


@operators.register("ties")
@dataclass(frozen=True)
class Ties(Merge):
    """On ΔW, module by module, then cut to the larger parent's rank. Small changes are noise, and
    parents that pull an element in opposite directions should not meet in the middle."""

    density: PositiveShare = 0.2  # part of each parent's largest elements that is kept, in (0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        merged = ((name, self._merged(deltas)) for name, deltas in dense(parents))
        return from_dense(parents[0].layout, max(parent.rank for parent in parents), merged)

    def _merged(self, deltas: np.ndarray) -> np.ndarray:
        """``(parents, d_out, d_in)`` to ``(d_out, d_in)``."""
        sizes = np.abs(deltas).reshape(len(deltas), -1)
        kept = max(int(self.density * sizes.shape[1]), 1)
        least = np.partition(sizes, -kept, axis=1)[:, -kept]
        trimmed = np.where(np.abs(deltas) >= least[:, None, None], deltas, 0.0)
        elected = np.where(trimmed.sum(axis=0) >= 0, 1.0, -1.0)
        agrees = trimmed * elected > 0
        total = np.sum(trimmed, axis=0, where=agrees)
        return np.asarray(total / np.maximum(agrees.sum(axis=0), 1))
