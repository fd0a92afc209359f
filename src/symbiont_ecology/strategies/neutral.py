"""Control: births and deaths at given times, and everything else by draw.

What an ecology does better than this is what its births and deaths find out (neutral theory,
Hubbell 2001). The times are those of an ecology's run in the same world.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pydantic import NonNegativeInt

from symbiont_ecology.ecology import Colonise, Decision, Retire
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.serving import MEALS, Serving, chosen, moves


@strategies.register("neutral")
@dataclass(frozen=True)
class Neutral(Serving):
    """Newborns get as many habitats as they got in the ecology, but which is drawn; so is who dies.

    A habitat stays with its server while that lives.
    """

    births: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = ()  # [generation, habitats] each
    deaths: tuple[NonNegativeInt, ...] = ()  # generation of each

    def tell(self, context: StrategyContext) -> list[Decision]:
        """The births and deaths of this generation."""
        state, generator = context.state, context.draw("neutral")
        servers = [
            (name, habitat.last)
            for name, habitat in state.habitats.items()
            if not chosen(name, state) and habitat.last in state.population
        ]
        decisions: list[Decision] = [*moves(servers, state)]
        names = list(state.habitats)
        for moment, count in self.births:
            if moment == state.generation and names:
                drawn = generator.permutation(len(names))[:count]
                habitats = tuple(names[place] for place in drawn)
                decisions.append(Colonise(habitats, self.traits, context.rank, MEALS))
        living = list(state.population)
        for place in generator.permutation(len(living))[: Counter(self.deaths)[state.generation]]:
            decisions.append(Retire(living[place], "drawn"))
        return [*decisions, *self.found(context)]
