"""Allocators: who meets which task during a run. They are bandits over (organelle, cell)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from symbiont_ecology.base.registry import Registry, Share
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import SuccessPosterior

Posteriors = Sequence[SuccessPosterior]


class Allocator(ABC):
    """Frozen: posteriors in, assignments out. Each has its own ``pick``."""

    @property
    @abstractmethod
    def fade(self) -> float:
        """Part of a posterior's counts that is left after each generation with news, in [0, 1]."""

    @abstractmethod
    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """Who takes a question of a cell, by place among those who can still pay.

        ``known`` are their success posteriors there (of the unknown, an empty one), ``given`` how
        many questions of the cell each of them was given in this generation.
        """

    def assign(
        self,
        niches: Sequence[str],
        posteriors: Mapping[OrganelleId, Mapping[str, SuccessPosterior]],
        allowance: Mapping[OrganelleId, int],
        generator: Generator,
    ) -> list[tuple[OrganelleId, int]]:
        """Who takes each of the demanded questions: organelle, and place of the question among
        ``niches``, which names a cell or a habitat for each.

        ``allowance`` is how many questions each organelle can pay for. Questions that nobody can
        pay for are left out. In random order, so that no cell is always served last when energy
        runs short; who can pay is in the order of ids, so that the order of a mapping decides
        nothing.
        """
        left, given = dict(sorted(allowance.items())), Counter[tuple[OrganelleId, str]]()
        assigned = []
        for index in map(int, generator.permutation(len(niches))):
            able = [taker for taker, questions in left.items() if questions > 0]
            if not able:
                break
            name = niches[index]
            known = [posteriors.get(taker, {}).get(name, SuccessPosterior()) for taker in able]
            taker = able[self.pick(known, [given[taker, name] for taker in able], generator)]
            left[taker] -= 1
            given[taker, name] += 1
            assigned.append((taker, index))
        return assigned


def sampled(known: Posteriors, generator: Generator) -> np.ndarray:
    """One draw of each success rate from its Beta posterior (Thompson 1933), ``(organelles,)``."""
    return generator.beta([1 + b.successes for b in known], [1 + b.failures for b in known])


allocators: Registry[Allocator] = Registry("allocator", "symbiont_ecology.ecology.routing")


@allocators.register("epsilon_greedy")
@dataclass(frozen=True)
class EpsilonGreedy(Allocator):
    """A cell belongs to whoever has the highest lower bound of success there: a standard deviation
    below the mean. A share ε of the questions explores (Sutton & Barto 2018, 2.2): it goes to the
    others, by Thompson sampling.

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


@allocators.register("thompson")
@dataclass(frozen=True)
class Thompson(Allocator):
    """Each question goes to whoever draws the highest success rate (Thompson 1933). Counts fade,
    because organelles learn and yesterday's verdicts age."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """One Beta draw each; the highest takes the question."""
        return int(np.argmax(sampled(known, generator)))


BONUS = 0.5
"""Weight of √(log n ÷ nᵢ) in an upper bound. A control, which no preset varies: not a knob."""


@allocators.register("ucb")
@dataclass(frozen=True)
class UpperBound(Allocator):
    """Mean success plus a bonus for what has been tried little, on counts that fade (discounted
    UCB, Garivier & Moulines 2011)."""

    fade: ClassVar[float] = 0.8

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """What was just given counts as tried, and ties are drawn."""
        tried = zip(known, given, strict=True)
        counts = np.array(
            [1 + posterior.successes + posterior.failures + more for posterior, more in tried]
        )
        bounds = np.array([posterior.mean for posterior in known])
        bounds += BONUS * np.sqrt(np.log(counts.sum()) / counts)
        return int(np.argmax(bounds + 1e-9 * generator.random(len(known))))


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform(Allocator):
    """Control: anyone who can pay takes a question. Skill decides who is right, and never who is
    asked, so only prices can favour the rare."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """Anyone, by draw."""
        return int(generator.integers(len(known)))
