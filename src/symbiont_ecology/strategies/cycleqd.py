"""CycleQD: an archive for every task, and each task in turn is the quality.

Kuroki et al. 2024 (arXiv:2410.14735): in the archive of a task, organelles of every pattern of
scores at the other tasks compete by their score at this one (MAP-Elites, Mouret and Clune 2015). In
each generation the next task is the quality, and parents come from its archive, the better the more
often. Singular values of a mix of two are jittered. Who is the elite of no place leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Birth, Decision, Retire
from symbiont_ecology.operators import with_arity
from symbiont_ecology.registry import Spec, kind_of
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.exams import Marks
from symbiont_ecology.strategies.experts import ExpertStrategy
from symbiont_ecology.strategies.genetic import Offspring
from symbiont_ecology.types import OrganelleId

SELDOM, OFTEN = 0.5, 0.8
"""What the worst and the best of an archive count at a task, when parents are drawn."""
Scores = Mapping[OrganelleId, Sequence[float]]
"""Of everyone at every task. What is outside of [0, 1] is in the first or the last bin."""


@strategies.register("cycleqd")
@dataclass(frozen=True)
class CycleQD(ExpertStrategy):
    """Quality diversity with a quality that changes by turns. A cell is a task.

    It differs from the paper in the mutation: there, singular values of the expert of the task grow
    by random parts; here, those of the child itself change both ways.
    """

    offspring: PositiveInt = 6  # children of a generation
    bins: PositiveInt = 5  # of the scores at one task, which tell behaviours apart
    spread: PositiveFloat = 0.3  # standard deviation of the parents' weights around 1, in a mix
    mutation: Spec = field(default_factory=lambda: {"kind": "svd_noise", "sigma": 0.1})  # of one

    def __post_init__(self) -> None:
        super().__post_init__()
        with_arity(self.mutation, 1)

    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """Who is nobody's elite leaves; the elites of this generation's task have children."""
        cells, cell_of = context.tasks.cells, {i.id: i.cell for i in self.exam(context)}
        scores = {
            name: [fmean(own[item] for item in own if cell_of[item] == cell) for cell in cells]
            for name, own in marks.items()
        }
        archives = [archive_of(task, scores, self.bins) for task in range(len(cells))]
        elites, archive = set().union(*archives), archives[context.state.generation % len(cells)]
        columns = zip(*(scores[name] for name in archive), strict=True)
        chances = np.prod([_spread_out(column) for column in columns], axis=0)
        chance_of = dict(zip(archive, chances / chances.sum(), strict=True))
        exits: list[Decision] = [Retire(name, "no elite") for name in marks if name not in elites]
        return exits + [self._child(chance_of, number, context) for number in range(self.offspring)]

    def _child(
        self, chances: Mapping[OrganelleId, float], number: int, context: StrategyContext
    ) -> Birth:
        """Of two elites, if there are two, by chance."""
        generator, count = context.draw("mates", number), min(len(chances), 2)
        mates = generator.choice(list(chances), count, replace=False, p=list(chances.values()))
        parents = (str(mates[0]), str(mates[-1]))
        weights = np.maximum(generator.normal(1.0, self.spread, 2), 0.01)
        mix: Spec = {"kind": "svd", "share": float(weights[0] / weights.sum())}
        name, traits = kind_of(self.mutation), context.state.population[parents[0]].genome.traits
        return Birth(parents, Offspring(mix, self.mutation), f"mix and {name}", traits)


def archive_of(task: int, scores: Scores, bins: int) -> list[OrganelleId]:
    """The best at a task among those of equal behaviour at all others; of equals the oldest."""
    best: dict[tuple[int, ...], OrganelleId] = {}
    for name, own in scores.items():
        others = (*own[:task], *own[task + 1 :])
        place = tuple(min(max(int(score * bins), 0), bins - 1) for score in others)
        if place not in best or own[task] > scores[best[place]][task]:
            best[place] = name
    return list(best.values())


def _spread_out(values: Sequence[float]) -> np.ndarray:
    """From SELDOM to OFTEN, in order and proportion."""
    low, high = min(values), max(values)
    return SELDOM + (OFTEN - SELDOM) * (np.array(values) - low) / ((high - low) or 1.0)
