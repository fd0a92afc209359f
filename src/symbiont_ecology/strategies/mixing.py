"""Evolutionary model merging: a search for the weights with which experts are mixed.

Akiba et al. 2024 (arXiv:2403.13187): models that learned different things are merged, and CMA-ES
looks for the merge's parameters by what the merged model scores. Here, a merge is Σ weight · ΔW,
and the search is separable CMA-ES (Ros and Hansen 2008) of the package ``cmaes`` (Nomura and
Shibata 2024, arXiv:2402.01373), made again in every generation from its seed and all scores so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Birth, Decision, Note, Retire
from symbiont_ecology.errors import MissingExtraError
from symbiont_ecology.learning import LearningRule
from symbiont_ecology.operators.means import GroupedCombination
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.strategies.exams import Marks, mean_mark
from symbiont_ecology.strategies.experts import ExpertStrategy
from symbiont_ecology.types import OrganelleId

Several = Annotated[int, Field(ge=2)]
MIX, SCORES = "mix", "scores of mixes"
"""The trait that numbers mixes from 0, and the note that holds their scores in that order."""


@strategies.register("mixing")
@dataclass(frozen=True)
class Mixing(ExpertStrategy):
    """Experts stay as they are after school; mixes of them come and go, and the best of all stays.

    Unlike in the paper, only weights of sums are searched. Nothing is trimmed, and no layer moves.
    """

    population: Several = 4  # experts, 2 or more
    offspring: Several = 8  # mixes of a generation, 2 or more
    groups: PositiveInt = 1  # groups of layers with weights of their own; 1: a weight per expert
    start: float = 0.5  # every weight of the mean, at first
    sigma: PositiveFloat = 0.2  # standard deviation of weights, at first

    def check(self, rank: int, rule: LearningRule) -> None:
        """A missing package shows before a host is loaded."""
        super().check(rank, rule)
        self.search((), 0)

    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """The search is told the scores of its mixes; all but the best make room for others."""
        living = {o.id: o.genome.traits for o in context.state.population.values()}
        experts = {int(genes[NICHE]): name for name, genes in living.items() if MIX not in genes}
        mixes = {int(genes[MIX]): name for name, genes in living.items() if MIX in genes}
        if missing := [number for number in range(self.population) if number not in experts]:
            return [self.founder(number, context) for number in missing]  # after a catastrophe
        scores = {number: mean_mark(marks[name]) for number, name in mixes.items()}
        told = context.state.notes.get(SCORES, ())
        if new := {number: score for number, score in scores.items() if number >= len(told)}:
            numbers, worst = range(len(told), len(told) + self.offspring), min(new.values())
            told += tuple(new.get(number, worst) for number in numbers)  # who is gone counts as bad
        best = max(scores, key=lambda number: (scores[number], number), default=None)
        parents = tuple(experts[number] for number in range(self.population))
        seed = int(Draw(context.state.seed)("search").integers(1 << 32))
        decisions: list[Decision] = [Note(SCORES, told)]
        decisions += [Retire(name, "not best") for number, name in mixes.items() if number != best]
        for number, weights in enumerate(self.search(told, seed), len(told)):
            shown = {f"w{at}": share for at, share in enumerate(weights.ravel().tolist(), 1)}
            traits = {**self.traits, MIX: float(number), **shown}
            mix = GroupedCombination(tuple(map(tuple, weights.tolist())))
            decisions.append(Birth(parents, mix, "mix", traits))
        return decisions

    def search(self, told: Sequence[float], seed: int) -> list[np.ndarray]:
        """The weights of the next mixes, ``(groups, experts)``, after the scores of all before.

        Raises:
            MissingExtraError: the package is not installed.
        """
        try:
            from cmaes import SepCMA
        except ImportError as error:
            raise MissingExtraError("strategy mixing", "cmaes", "tuning") from error
        mean, size = np.full(self.groups * self.population, self.start), self.offspring
        sampler = SepCMA(mean=mean, sigma=self.sigma, seed=seed, population_size=size)
        for first in range(0, len(told) + 1, size):
            points = [sampler.ask() for _ in range(size)]
            if scores := told[first : first + size]:
                sampler.tell([(point, -score) for point, score in zip(points, scores, strict=True)])
        return [point.reshape(self.groups, self.population) for point in points]
