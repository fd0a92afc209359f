"""Merges that mix what two parents do: the child's ΔW is their mean, with one weight or many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import combined, truncated
from symbiont_ecology.adapters.operators import Merge, Parent, Parents, largest_rank, operators
from symbiont_ecology.base.registry import Share


@operators.register("linear")
@dataclass(frozen=True)
class LinearMerge(Merge):
    """Weighted mean of ΔW (model soups, Wortsman et al. 2022, arXiv:2203.05482), at the sum of the
    ranks.

    Averages of A and of B would be the average of nothing: for parents at right angles to each
    other they miss the mean of ΔW by 71 % of its length.
    """

    share: Share = 0.5  # of the first parent, in [0, 1]; the second has the rest

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        return combined(parents, (self.share, 1 - self.share))


@operators.register("svd")
@dataclass(frozen=True)
class Svd(LinearMerge):
    """``linear``, cut to the larger parent's rank where its spectrum is longest (Eckart & Young
    1936): generations of merges do not grow."""

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        mean = super().__call__(parents, generator)
        return truncated(mean, largest_rank(parents))


@operators.register("concatenation")
@dataclass(frozen=True)
class Concatenation(Merge):
    """The sum of ΔW, scaled down, without loss, at the sum of the ranks.

    What skills add to the activations grows with their number. ``decay`` 0 leaves the sum, 1 makes
    it the mean, and 0.5 keeps its length when the parents are at right angles to each other.
    """

    decay: Share = 0.5  # power of the number of parents by which their sum is divided, in [0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        share = 1 / len(parents) ** self.decay
        return combined(parents, [share] * len(parents))


@operators.register("fisher")
@dataclass(frozen=True)
class Fisher(Merge):
    """Fisher-weighted mean of ΔW, cut to the larger parent's rank (Matena & Raffel 2021,
    arXiv:2111.09832).

    Fisher information is one number per module and parent, as a share of that parent's total: an
    element of a factor means something else in every parent. It is taken from Adam's second
    moments, which stand in for it at no cost (Li et al. 2025, arXiv:2507.18807); shares of a total
    need neither their scale nor their bias corrected, and do not fade as a parent masters its task.
    A parent that never learned counts alike in all modules.
    """

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        importance = np.stack(list(map(_importance, parents)), axis=1)  # (modules, parents)
        importance += np.finfo(np.float64).tiny  # a module on which nobody depends is shared evenly
        shares = importance / importance.sum(axis=1, keepdims=True)
        names = [name for name, _, _ in parents[0].layout.modules]
        mean = combined(parents, dict(zip(names, shares.tolist(), strict=True)))
        return truncated(mean, largest_rank(parents))


def _importance(parent: Parent) -> np.ndarray:
    """Return squared length of the loss's gradient by ΔW of each module, as a share of all
    modules', ``(modules,)``.

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
