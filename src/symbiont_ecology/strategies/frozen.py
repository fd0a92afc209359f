"""Control: a population with the economy on, in which nobody learns and nobody varies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, Found
from symbiont_ecology.strategies import Strategy, StrategyContext, strategies
from symbiont_ecology.types import Cell, Item, OrganelleId


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
        allowance = dict.fromkeys(state.population, len(demand))
        generator = draw("allocate")
        takers = context.allocator.assign(demand, state.posteriors, allowance, generator)
        taken: dict[tuple[OrganelleId, Cell], list[Item]] = defaultdict(list)
        for organelle_id, cell in takers:
            items = taken[organelle_id, cell]
            items += context.tasks.draw(cell, 1, draw("items", *cell, len(items), organelle_id))
        return [
            Assignment(organelle_id, tuple(items), self.samples)
            for (organelle_id, _), items in sorted(taken.items())
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless nobody is left: then there are founders again."""
        return [] if context.state.population else self.found(context)
