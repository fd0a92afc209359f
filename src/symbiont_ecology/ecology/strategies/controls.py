"""Controls: populations without evolution, on the same engine, tasks and meter as the ecology."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from symbiont_ecology.base.types import Item, cell_family, cell_name
from symbiont_ecology.ecology import Assignment, Decision, DriftDetector, Found, Retire, drift_score
from symbiont_ecology.ecology.strategies import (
    LearningStrategy,
    Strategy,
    StrategyContext,
    Want,
    World,
    assignments,
    strategies,
)

SETTLING = 12
"""Generations that a new start is left alone."""


@strategies.register("single")
@dataclass(frozen=True)
class Single(LearningStrategy):
    """One organelle takes every question; nobody breeds or goes bankrupt.

    With ``reset`` above 0 it starts anew from the host when success falls: the control for changes
    of the world, since one that only goes on never recovers. ``samples: 0`` with supervised
    learning_rule is SFT.
    """

    reset: NonNegativeFloat = 0.0  # drift score at which it starts anew; 0: never
    by_family: bool = False  # whether the score of one family alone is enough
    worlds: ClassVar[frozenset[World]] = frozenset({"cells", "users"})

    def found(self, context: StrategyContext) -> list[Decision]:
        return [Found(self.traits, context.rank)]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        items, living = self.items(context), context.state.population
        takers = ((name, item) for name in living for item in items)
        return assignments(takers, self.samples)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Found it anew if it is gone (a NaN) or the world changed."""
        state, decisions = context.state, list[Decision]()
        has_changed = self.reset and self._drift(state.drift_detectors) >= self.reset
        for organelle in state.population.values():
            if has_changed and state.generation - organelle.born >= SETTLING:
                decisions.append(Retire(organelle.id, "reset"))
        return [*decisions, *self.found(context)] if decisions or not state.population else []

    def _drift(self, detectors: Mapping[str, DriftDetector]) -> float:
        """Return the drift score of all cells, or the highest of a family's cells."""
        families: dict[str, list[DriftDetector]] = defaultdict(list)
        for name, detector in detectors.items():
            families[cell_family(name) if self.by_family else ""].append(detector)
        return max(map(drift_score, families.values()), default=0.0)


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
    wants: ClassVar[frozenset[Want]] = frozenset({"deaths"})

    def found(self, context: StrategyContext) -> list[Decision]:
        return [Found({}, context.rank, b_std=self.b_std) for _ in range(self.founders)]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        state, draw = context.state, context.draw
        demand = [cell for cell in context.tasks.cells for _ in range(self.questions)]
        allowance, names = dict.fromkeys(state.population, len(demand)), map(cell_name, demand)
        generator = draw("allocate")
        takers = context.allocator.assign(list(names), state.posteriors, allowance, generator)
        taken = Counter((who, demand[place]) for who, place in takers)
        asked = list[Assignment]()
        for (who, cell), count in sorted(taken.items()):
            items = list[Item]()
            for number in range(count):
                items += context.tasks.draw(cell, 1, draw("items", *cell, number, who))
            asked.append(Assignment(who, tuple(items), self.samples))
        return asked

    def tell(self, context: StrategyContext) -> list[Decision]:
        return [] if context.state.population else self.found(context)
