"""Control: one adapter learns everything, with the ecology's learning rule and rewards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pydantic import NonNegativeFloat

from symbiont_ecology.ecology import Assignment, Decision, Found, Retire, drift_score
from symbiont_ecology.strategies import CurriculumStrategy, StrategyContext, strategies

SETTLING = 12
"""Generations that a new start is left alone."""


@strategies.register("single")
@dataclass(frozen=True)
class Single(CurriculumStrategy):
    """One organelle takes every question; nobody breeds or goes bankrupt.

    With ``reset`` above 0 it starts anew from the host when success falls: the control for changes
    of the world, since one that only goes on never recovers. ``samples: 0`` with supervised
    learning_rule is SFT.
    """

    reset: NonNegativeFloat = 0.0  # alarm (ecology.drift) at which it starts anew; 0: never

    def found(self, context: StrategyContext) -> list[Decision]:
        """The one organelle, which starts as the host itself (B = 0)."""
        return [Found(self.traits, context.rank)]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """All questions of all cells."""
        tasks, draw, demand = context.tasks, context.draw, Counter(self.demand(context))
        return [
            Assignment(organelle_id, tasks.draw(cell, asked, draw("items", *cell)), self.samples)
            for organelle_id in context.state.population
            for cell, asked in demand.items()
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing, unless it is gone (a NaN, a catastrophe) or the world changed: it is then
        founded anew."""
        state, decisions = context.state, list[Decision]()
        has_changed = self.reset and drift_score(state.drift_detectors.values()) >= self.reset
        for organelle in state.population.values():
            if has_changed and state.generation - organelle.born >= SETTLING:
                decisions.append(Retire(organelle.id, "reset"))
        return [*decisions, *self.found(context)] if decisions or not state.population else []
