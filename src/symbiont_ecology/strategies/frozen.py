"""Control: a population with the economy on, in which nobody learns and nobody varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Decision, EcologyState, Found, Outcome, Trial
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Scene, strategies
from symbiont_ecology.types import Cell, Item, OrganelleId


@strategies.register("frozen")
@dataclass(frozen=True)
class Frozen:
    """Founders differ from the host and from each other (B ≠ 0) and stay as they are.

    Pair it with ``plasticity: none``. The bankrupt still die.
    """

    founders: PositiveInt = 8  # organelles at the start
    questions: PositiveInt = 1  # per cell and generation
    samples: PositiveInt = 1  # rollouts per question
    b_std: PositiveFloat = 0.02  # standard deviation of the founders' B, > 0
    is_mortal: ClassVar[bool] = True

    def found(self, scene: Scene) -> Sequence[Decision]:
        """Founders with small random deviations from the host."""
        return [Found({}, scene.rank, b_std=self.b_std) for _ in range(self.founders)]

    def ask(self, state: EcologyState, scene: Scene, draw: Draw) -> Sequence[Trial]:
        """The allocator hands out all questions among the living."""
        demand = [cell for cell in scene.tasks.cells for _ in range(self.questions)]
        allowance = {who: len(demand) for who in state.population}
        taken: dict[tuple[OrganelleId, Cell], list[Item]] = defaultdict(list)
        for who, cell in scene.allocator.assign(demand, state.beliefs, allowance, draw("allocate")):
            taken[who, cell] += scene.tasks.draw(cell, 1, draw("items", *cell, len(taken[who, cell]), who))
        return [Trial(who, tuple(items), self.samples) for (who, _), items in sorted(taken.items())]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, draw: Draw
    ) -> Sequence[Decision]:
        """Nothing follows, unless nobody is left: then there are founders again."""
        return [] if state.population else self.found(scene)
