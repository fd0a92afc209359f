"""Allocators and curricula: what is asked about, and who is asked.

Curricula deal the questions of a generation out to cells. Allocators are bandits over (organelle,
cell).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from symbiont_ecology.base.registry import Registry, Share
from symbiont_ecology.base.types import Cell, OrganelleId, cell_name
from symbiont_ecology.ecology import DriftDetector, SuccessPosterior

Posteriors = Sequence[SuccessPosterior]


@dataclass(frozen=True)
class Allocator(ABC):
    """Frozen: posteriors in, assignments out. Each has its own ``pick``."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    @abstractmethod
    def pick(self, known: Posteriors, generator: Generator) -> int:
        """Return who takes a question of a cell, by place among those who can still pay.

        ``known`` are their success posteriors there (of the unknown, an empty one).
        """

    def assign(
        self,
        niches: Sequence[str],
        posteriors: Mapping[OrganelleId, Mapping[str, SuccessPosterior]],
        allowance: Mapping[OrganelleId, int],
        generator: Generator,
    ) -> list[tuple[OrganelleId, int]]:
        """Return who takes each of the demanded questions: organelle, and place of the question
        among ``niches``, which names a cell or a user for each.

        ``allowance`` is how many questions each organelle can pay for. Questions that nobody can
        pay for are left out. In random order, so that no cell is always served last when energy
        runs short; who can pay is in the order of ids, so that the order of a mapping decides
        nothing.
        """
        left, assigned = dict(sorted(allowance.items())), []
        for index in map(int, generator.permutation(len(niches))):
            able = [taker for taker, questions in left.items() if questions > 0]
            if not able:
                break
            name = niches[index]
            known = [posteriors.get(taker, {}).get(name, SuccessPosterior()) for taker in able]
            taker = able[self.pick(known, generator)]
            left[taker] -= 1
            assigned.append((taker, index))
        return assigned


def sampled(known: Posteriors, generator: Generator) -> np.ndarray:
    """Draw each success rate from its Beta posterior (Thompson 1933), ``(organelles,)``."""
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

    def pick(self, known: Posteriors, generator: Generator) -> int:
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

    def pick(self, known: Posteriors, generator: Generator) -> int:
        return int(np.argmax(sampled(known, generator)))


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform(Allocator):
    """Control: anyone who can pay takes a question. Skill decides who is right, and never who is
    asked, so only prices can favour the rare."""

    def pick(self, known: Posteriors, generator: Generator) -> int:
        return int(generator.integers(len(known)))


# What is asked about.


Cells = Sequence[Cell]
Detectors = Mapping[str, DriftDetector]
"""By cell name."""


class Curriculum(Protocol):
    """Frozen. It sees the last verdicts of every cell, and says where questions teach most."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """Return the cells of ``count`` questions, in the order of ``cells``."""


curricula: Registry[Curriculum] = Registry("curriculum", "symbiont_ecology.ecology.routing")


@curricula.register("even")
@dataclass(frozen=True)
class Even:
    """Every cell asks the same number of questions, however well it is mastered."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        each, rest = divmod(count, len(cells))
        lucky = set(generator.permutation(len(cells))[:rest]) if rest else set()
        return [cell for i, cell in enumerate(cells) for _ in range(each + (i in lucky))]


FLOOR = 0.2
"""Part of an even share that every cell gets at least: what is never asked cannot be seen to
change."""


@curricula.register("unmastered")
@dataclass(frozen=True)
class Unmastered:
    """In proportion to 1 − p of a cell's success p, beside ``FLOOR``: more questions where more is
    to be won.

    Shares are rounded by one draw (systematic sampling), so each is met to within one question.
    """

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        latest = [detectors.get(cell_name(cell), DriftDetector()).lately for cell in cells]
        worth = np.array([1 - success for success in latest]) + 1e-9
        shares = FLOOR / len(cells) + (1 - FLOOR) * worth / worth.sum()
        places = np.searchsorted(np.cumsum(shares), (generator.random() + np.arange(count)) / count)
        return [cells[min(int(place), len(cells) - 1)] for place in places]
