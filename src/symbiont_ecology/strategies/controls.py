"""Controls: populations without evolution, on the same engine, tasks and meter as the ecology."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, DriftDetector, Found, Retire, drift_score
from symbiont_ecology.strategies import (
    CurriculumStrategy,
    Strategy,
    StrategyContext,
    assignments,
    strategies,
)
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Cell, Item, OrganelleId, cell_family, cell_name

SETTLING = 12
"""Generations that a new start is left alone."""
RECENT = 4
"""Losses that are compared with those before them, to see whether the world changed."""
NICHE = "niche"
"""The trait that says which share of the families a learner has."""


@strategies.register("single")
@dataclass(frozen=True)
class Single(CurriculumStrategy):
    """One organelle takes every question; nobody breeds or goes bankrupt.

    With ``reset`` above 0 it starts anew from the host when success falls: the control for changes
    of the world, since one that only goes on never recovers. ``samples: 0`` with supervised
    learning_rule is SFT.
    """

    reset: NonNegativeFloat = 0.0  # drift score at which it starts anew; 0: never
    by_family: bool = False  # whether the score of one family alone is enough
    fits_habitats: ClassVar[bool] = True

    def found(self, context: StrategyContext) -> list[Decision]:
        """The one organelle, which starts as the host itself (B = 0), or warm."""
        return [Found(self.traits, context.rank)]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """All questions."""
        items, living = self.items(context), context.state.population
        takers = ((name, item) for name in living for item in items)
        return self.sampled(assignments(takers, self.samples), context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing, unless it is gone (a NaN, a catastrophe) or the world changed: it is then
        founded anew."""
        state, decisions = context.state, list[Decision]()
        has_changed = self.reset and self._drift(state.drift_detectors) >= self.reset
        for organelle in state.population.values():
            if has_changed and state.generation - organelle.born >= SETTLING:
                decisions.append(Retire(organelle.id, "reset"))
        return [*decisions, *self.found(context)] if decisions or not state.population else []

    def _drift(self, detectors: Mapping[str, DriftDetector]) -> float:
        """The drift score of all cells, or the highest of a family's cells."""
        families: dict[str, list[DriftDetector]] = defaultdict(list)
        for name, detector in detectors.items():
            families[cell_family(name) if self.by_family else ""].append(detector)
        return max(map(drift_score, families.values()), default=0.0)


@strategies.register("independent")
@dataclass(frozen=True)
class Independent(CurriculumStrategy):
    """Every learner has families of its own, dealt out in turn, and takes all their questions.

    Nobody breeds or goes bankrupt. What an ecology adds to this is what its economy and its
    evolution add. ``samples: 0`` with supervised learning_rule makes SFT specialists.
    """

    learners: PositiveInt | None = None  # how many; None is one for each family
    reset: NonNegativeFloat = 0.0  # rise of its loss, nats per token, at which one starts anew

    @property
    def watches_losses(self) -> bool:  # type: ignore[override]
        """Whether losses decide who starts anew."""
        return self.reset > 0

    def found(self, context: StrategyContext) -> list[Decision]:
        """Every niche without a learner gets one. It starts as the host itself (B = 0), or warm."""
        owners = self._owners(context)
        return [
            Found({**self.traits, NICHE: float(niche)}, context.rank)
            for niche in range(self._count(context.tasks))
            if niche not in owners
        ]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """To everyone all questions of their own families."""
        owners, tasks = self._owners(context), context.tasks
        niches = {name: index % self._count(tasks) for index, name in enumerate(tasks.names)}
        assigned = [
            Assignment(
                owners[niche], tasks.draw(cell, count, context.draw("items", *cell)), self.samples
            )
            for cell, count in Counter(self.demand(context)).items()
            if (niche := niches[cell[0]]) in owners
        ]
        return self.sampled(assigned, context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless someone is gone (a NaN, a catastrophe) or its loss jumped: then
        that niche is founded anew."""
        outdated = [
            organelle
            for organelle in context.state.population.values()
            if self.reset and _rise(context.state.losses.get(organelle.id, ())) >= self.reset
        ]
        decisions: list[Decision] = [Retire(organelle.id, "reset") for organelle in outdated]
        for organelle in outdated:
            niche = organelle.genome.traits[NICHE]
            decisions.append(Found({**self.traits, NICHE: niche}, context.rank))
        return [*decisions, *self.found(context)]

    def _owners(self, context: StrategyContext) -> dict[int, str]:
        return {int(o.genome.traits[NICHE]): o.id for o in context.state.population.values()}

    def _count(self, tasks: TaskMixture) -> int:
        return min(self.learners or len(tasks.names), len(tasks.names))


def _rise(losses: Sequence[float]) -> float:
    """How much the last losses are above those before them, in nats per token; 0 while unknown."""
    if len(losses) <= 2 * RECENT:
        return 0.0
    return fmean(losses[-RECENT:]) - fmean(losses[:-RECENT])


@strategies.register("frozen")
@dataclass(frozen=True)
class Frozen(Strategy):
    """Founders differ from the host and from each other (B ≠ 0) and stay as they are.

    Pair it with ``learning_rule: none``. The bankrupt still die.
    """

    founders: PositiveInt = 8  # organelles at the start
    questions: PositiveInt = 1  # per cell and generation
    samples: PositiveInt = 1  # rollouts per question
    b_std: PositiveFloat = 0.02  # standard deviation of the founders' B, > 0
    is_mortal: ClassVar[bool] = True

    def found(self, context: StrategyContext) -> list[Decision]:
        """Founders with small random deviations from the host."""
        return [Found({}, context.rank, b_std=self.b_std) for _ in range(self.founders)]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """The allocator hands out all questions among the living."""
        state, draw = context.state, context.draw
        demand = [cell for cell in context.tasks.cells for _ in range(self.questions)]
        allowance, names = dict.fromkeys(state.population, len(demand)), map(cell_name, demand)
        generator = draw("allocate")
        takers = context.allocator.assign(list(names), state.posteriors, allowance, generator)
        taken: dict[tuple[OrganelleId, Cell], list[Item]] = defaultdict(list)
        for organelle_id, place in takers:
            cell = demand[place]
            items = taken[organelle_id, cell]
            items += context.tasks.draw(cell, 1, draw("items", *cell, len(items), organelle_id))
        return [
            Assignment(organelle_id, tuple(items), self.samples)
            for (organelle_id, _), items in sorted(taken.items())
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless nobody is left: then there are founders again."""
        return [] if context.state.population else self.found(context)
