"""Control: one adapter learns everything, with the ecology's plasticity, questions and rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
from symbiont_ecology.strategies import Asking, StrategyContext, strategies

SETTLING = 12
"""Generations that a new start is left alone."""


@strategies.register("single")
@dataclass(frozen=True)
class Single(Asking):
    """One organelle takes every question; nobody breeds or goes bankrupt.

    With ``reset`` above 0 it starts anew from the host when success falls: the control for changes
    of the world, since one that only goes on never recovers. ``samples: 0`` with supervised
    plasticity is SFT.
    """

    questions: PositiveFloat = 1  # per cell and generation, on average
    curriculum: Spec = "unmastered"  # which cells they are about
    samples: NonNegativeInt = 1  # rollouts per question; 0 only reads, for supervised plasticity
    learning_rate: PositiveFloat = 0.005  # Adam step size, > 0
    aging: NonNegativeFloat = (
        100.0  # updates from which on the step size falls with their root; 0: never
    )
    reset: NonNegativeFloat = 0.0  # alarm (ecology.watch) at which it starts anew; 0: never
    is_mortal: ClassVar[bool] = False

    def found(self, scene: StrategyContext) -> Sequence[Decision]:
        """The one organelle, which starts as the host itself (B = 0)."""
        return [Found({"learning_rate": self.learning_rate, "aging": self.aging}, scene.rank)]

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """All questions of all cells."""
        demand = Counter(self.demand(state, scene, draw))
        return [
            Assignment(
                organelle_id, scene.tasks.draw(cell, asked, draw("items", *cell)), self.samples
            )
            for organelle_id in state.population
            for cell, asked in demand.items()
        ]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: StrategyContext, draw: Draw
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
        return [*decisions, *self.found(scene)] if decisions or not state.population else []
