"""Control: one adapter learns everything, with the ecology's plasticity, questions and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Decision, EcologyState, Found, Outcome, Trial
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Scene, strategies


@strategies.register("single")
@dataclass(frozen=True)
class Single:
    """One organelle takes every question; nobody breeds, and nobody dies."""

    questions: PositiveInt = 4  # per cell and generation
    samples: PositiveInt = 4  # rollouts per question
    learning_rate: PositiveFloat = 0.005  # Adam step size, > 0
    is_mortal: ClassVar[bool] = False

    def found(self, scene: Scene) -> Sequence[Decision]:
        """The one organelle, which starts as the host itself (B = 0)."""
        return [Found({"learning_rate": self.learning_rate}, scene.rank)]

    def ask(self, state: EcologyState, scene: Scene, draw: Draw) -> Sequence[Trial]:
        """All questions of all cells."""
        return [
            Trial(who, scene.tasks.draw(cell, self.questions, draw("items", *cell)), self.samples)
            for who in state.population
            for cell in scene.tasks.cells
        ]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, draw: Draw
    ) -> Sequence[Decision]:
        """Nothing follows, unless it met a NaN and was quarantined: then it is founded anew."""
        return [] if state.population else self.found(scene)
