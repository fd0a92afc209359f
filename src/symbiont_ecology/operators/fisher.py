"""The mean of what two parents do, weighed in every module by who depends on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parent, Parents, operators
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined, truncated


@operators.register("fisher")
@dataclass(frozen=True)
class Fisher(Merge):
    """Fisher-weighted mean of ΔW, cut to the larger parent's rank (Matena & Raffel 2021,
    arXiv:2111.09832).

    Fisher information is one number per module and parent, as a share of that parent's total: an
    element of a factor means something else in every parent. It is taken from Adam's second
    moments, which stand in for it at no cost (Li et al. 2025, arXiv:2507.18807); shares of a total
    need neither their scale nor their bias corrected, and do not fade as a parent masters its task.
    Who never learned counts alike everywhere.
    """

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        importance = np.stack(list(map(_importance, parents)), axis=1)  # (modules, parents)
        importance += np.finfo(np.float64).tiny  # a module on which nobody depends is shared evenly
        shares = importance / importance.sum(axis=1, keepdims=True)
        names = [name for name, _, _ in parents[0].layout.modules]
        mean = combined(parents, dict(zip(names, shares.tolist(), strict=True)))
        return truncated(mean, max(parent.rank for parent in parents))


def _importance(parent: Parent) -> np.ndarray:
    """Squared length of the loss's gradient by ΔW of each module, as a share of all modules',
    ``(modules,)``.

    Known is the gradient by B, which is that by ΔW times Aᵀ. In no particular direction, A keeps
    ‖A‖² ÷ d_in of a squared length; dividing by that also makes the number independent of how long
    A is.
    """
    squares = np.zeros(len(parent.layout.modules))
    if parent.optimizer_state.second is not None:
        for index, (_, a, b, d_in, _) in enumerate(parent.layout.blocks(parent.rank)):
            size = float(np.sum(np.square(parent.vector[a], dtype=np.float64)))
            moments = float(parent.optimizer_state.second[b].sum(dtype=np.float64))
            squares[index] = d_in * moments / size if size else 0.0
    return squares / squares.sum() if squares.any() else np.full(len(squares), 1 / len(squares))
