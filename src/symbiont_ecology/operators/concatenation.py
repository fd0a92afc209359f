"""Two parents side by side: what each of them does stays whole."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.operators import Merge, Parents, operators
from symbiont_ecology.registry import Share
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined


@operators.register("concatenation")
@dataclass(frozen=True)
class Concatenation(Merge):
    """The sum of ΔW, turned down, without loss, at the sum of the ranks.

    What skills add to the activations grows with their number. ``decay`` 0 leaves the sum, 1 makes
    it the mean, and 0.5 keeps its length when the parents are at right angles to each other.
    """

    decay: Share = 0.5  # power of the number of parents by which their sum is divided, in [0, 1]

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """No draw is made."""
        share = 1 / len(parents) ** self.decay
        return combined(parents, [share] * len(parents))
