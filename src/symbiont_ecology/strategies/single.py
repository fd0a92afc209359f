"""Control: one adapter learns everything, with the ecology's learning rule and rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from symbiont_ecology.ecology import (
    Assignment,
    Decision,
    EcologyState,
    Found,
    Outcome,
    Retire,
    drift_score,
)
from symbiont_ecology.registry import Spec
from symbiont_ecology.rng import Draw
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

    questions: PositiveFloat = 1  # per cell and generation, on average
    curriculum: Spec = "unmastered"  # which cells they are about
    samples: NonNegativeInt = 1  # rollouts per question; 0 only reads, for supervised learning_rule
    learning_rate: PositiveFloat = 0.005  # Adam step size, > 0
    aging: NonNegativeFloat = 100.0  # updates after which the step size falls; 0: never
    reset: NonNegativeFloat = 0.0  # alarm (ecology.watch) at which it starts anew; 0: never

    def found(self, context: StrategyContext) -> Sequence[Decision]:
        """The one organelle, which starts as the host itself (B = 0)."""
        return [Found({"learning_rate": self.learning_rate, "aging": self.aging}, context.rank)]

    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """All questions of all cells."""
        demand = Counter(self.demand(state, context, draw))
        return [
            Assignment(
                organelle_id, context.tasks.draw(cell, asked, draw("items", *cell)), self.samples
            )
            for organelle_id in state.population
            for cell, asked in demand.items()
        ]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], context: StrategyContext, draw: Draw
    ) -> Sequence[Decision]:
        """Nothing, unless it is gone (a NaN, a catastrophe) or the world changed: it is then
        founded anew."""
        decisions: list[Decision] = []
        for organelle in state.population.values():
            is_settled = state.generation - organelle.born >= SETTLING
            if (
                self.reset
                and is_settled
                and drift_score(state.drift_detectors.values()) >= self.reset
            ):
                decisions.append(Retire(organelle.id, "reset"))
        return [*decisions, *self.found(context)] if decisions or not state.population else []
