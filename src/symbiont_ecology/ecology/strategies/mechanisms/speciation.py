"""Speciation: organelles keep to prompts like those that they met; for strange ones comes another.

Nobody says that something new has come. A prompt that is far from what everyone alive has met is
left to the bare host. In the next generation there is a newcomer, who takes what is strange to all
others. So what the old know is not overwritten by what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.base.types import Item, OrganelleId, last_turn
from symbiont_ecology.ecology import HOST, Decision, Found
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("speciation")
@dataclass(frozen=True)
class Speciation(Mechanism):
    """Who takes a question by how familiar its prompt is, and newcomers for strange prompts."""

    strange: PositiveFloat = 5.0  # standard deviations from its prompts that are too far for it
    least: PositiveInt = 4  # strange questions of one generation that bring a newcomer
    keeps_ranges: ClassVar[bool] = True
    fits_habitats: ClassVar[bool] = False  # habitats say who asks

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Whoever knows such prompts best; a newcomer where nobody does, or else the host."""
        living, prompt = context.state.population.values(), last_turn(item.prompt)
        familiarity = {o.id: o.range.familiarity(prompt) for o in living if not o.range.is_open}
        best = max(familiarity, key=familiarity.__getitem__, default=None)
        if best is not None and familiarity[best] >= -self.strange:
            return best
        return next((o.id for o in living if o.range.is_open), HOST)

    def tell(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """A newcomer, if the host was asked what is strange to all, and there is room."""
        count = sum(
            len(outcome.assignment.items)
            for outcome in context.outcomes
            if outcome.assignment.organelle_id == HOST
        )
        if count < self.least or not room.places or not context.state.population:
            return ()
        return [Found(dict(room.traits), context.rank, operator="newcomer")]
