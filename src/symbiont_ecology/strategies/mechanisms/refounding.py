"""The gene pool gives back: where the population thins out, elites of the archive are founded
anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.ecology import Decision, Found
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("refounding")
@dataclass(frozen=True)
class Refounding(Mechanism):
    """Below a least size come elites of cells drawn by price, or fresh founders while there are
    none."""

    least: PositiveInt = 1  # size below which the population is refounded

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """As many as are missing now, whoever else is about to be born."""
        missing = min(self.least - len(context.state.population), room.places)
        return [self._refounded(context, room, number) for number in range(max(missing, 0))]

    def _refounded(self, context: StrategyContext, room: Room, number: int) -> Found:
        state, traits = context.state, dict(room.traits)
        elites = sorted(state.archive.elites.items())
        if not elites:
            return Found(traits, context.rank)
        worth = np.array([context.prices.price(state.success[name]) for name, _ in elites])
        worth += not worth.any()  # nothing pays: all alike
        generator = context.draw("refound", number)
        _, elite = elites[int(generator.choice(len(elites), p=worth / worth.sum()))]
        return Found(traits, elite.rank, elite.weights, operator="refounded")
