"""Territories: most questions of a cell go to who is surely good at them, a few to whoever may be
better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import Allocator, Posteriors, allocators, sampled


@allocators.register("epsilon_greedy")
@dataclass(frozen=True)
class EpsilonGreedy(Allocator):
    """A cell belongs to whoever has the highest lower bound of success there: a standard deviation
    below the mean. The ε of questions that explores (Sutton & Barto 2018, 2.2) does so by Thompson
    sampling.

    Learners that share a cell learn half as fast each, so there is one owner at a time; a newcomer
    takes over by what it shows in the questions that are set aside for exploring.
    """

    explore: Share = 0.1  # part of the questions that explores, by Thompson sampling
    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """The owner, or with some luck one of the others."""
        if len(known) == 1:
            return 0
        bounds = [posterior.bound for posterior in known]
        highest = max(bounds)
        best = [place for place, bound in enumerate(bounds) if bound == highest]
        owner = best[0] if len(best) == 1 else int(generator.choice(best))  # of equals by draw
        if generator.random() >= self.explore:
            return owner
        draws = sampled(known, generator)
        draws[owner] = -1.0
        return int(np.argmax(draws))
