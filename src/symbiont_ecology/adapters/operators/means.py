"""Merges that mix what two parents do: the child's ΔW is their sum or their mean."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import combined, truncated
from symbiont_ecology.adapters.operators import Merge, Parents, largest_rank, operators
from symbiont_ecology.base.registry import Share


@operators.register("concatenation")
@dataclass(frozen=True)
class Concatenation(Merge):
    """The sum of ΔW, scaled down, without loss, at the sum of the ranks.

    What skills add to the activations grows with their number. ``decay`` 0 leaves the sum, 1 makes
    it the mean, and 0.5 keeps its length when the parents are at right angles to each other.
    """

    decay: Share = 0.5  # power of the number of parents by which their sum is divided, in [0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        return combined(parents, 1 / len(parents) ** self.decay)


@operators.register("svd")
@dataclass(frozen=True)
class Svd(Merge):
    """The mean of ΔW (model soups, Wortsman et al. 2022, arXiv:2203.05482), cut to the larger
    parent's rank where its spectrum is longest (Eckart & Young 1936): generations of merges do not
    grow.

    Averages of A and of B would be the average of nothing: for parents at right angles to each
    other they miss the mean of ΔW by 71 % of its length.
    """

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        return truncated(combined(parents, 0.5), largest_rank(parents))
