"""Control: one adapter per habitat; a newcomer begins with a copy of its nearest neighbour's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.ecology import Colonise, Decision, EcologyState
from symbiont_ecology.ecology.diets import Diet, diet_of, likeness_in
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.serving import MEALS, Serving, asked, by_draw, chosen
from symbiont_ecology.types import OrganelleId


@strategies.register("nearest")
@dataclass(frozen=True)
class Nearest(Serving):
    """One adapter per habitat, and newcomers learn from neighbours (after Per-Pcs, 2406.10471).

    A newcomer asks the adapter of the habitat that is most like it, by sketches of what both
    accepted. After some accepted answers it has an adapter of its own: a copy of that one, or a
    fresh one if nobody is like it.
    """

    accepted: PositiveInt = 2  # answers that a habitat accepts before it has its own adapter
    needs_sketches: ClassVar[bool] = True

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        """Of each its own adapter, or its nearest neighbour's, or anybody."""
        state, diets = context.state, _diets(context)
        return [
            chosen(name, state) or _nearest(name, diets, state)[0] or by_draw(state, generator)
            for name in names
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """An adapter for every habitat that accepted enough."""
        state, diets, decisions = context.state, _diets(context), list[Decision]()
        for name in asked(context):
            if not chosen(name, state) and len(state.habitats[name].accepted) >= self.accepted:
                neighbour, likeness = _nearest(name, diets, state)
                weights = state.genome(neighbour).weights if neighbour and likeness > 0 else None
                own = Colonise((name,), self.traits, context.rank, MEALS, weights)
                decisions.append(own)
        return [*decisions, *self.found(context)]


def _diets(context: StrategyContext) -> dict[str, Diet]:
    """Those of all habitats of which something is known."""
    families = context.tasks.names
    diets = {
        name: diet_of(habitat.answers, families) for name, habitat in context.state.habitats.items()
    }
    return {name: diet for name, diet in diets.items() if not diet.is_empty}


def _nearest(
    name: str, diets: Mapping[str, Diet], state: EcologyState
) -> tuple[OrganelleId | None, float]:
    """The adapter of the habitat that is most like it, and by how much, in nats; None if nothing
    is known."""
    if name not in diets:
        return None, 0.0
    likeness = {
        server: likeness_in(state).agreement(diet, diets[name])
        for other, diet in diets.items()
        if other != name and (server := chosen(other, state))
    }
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best, likeness[best] if best else 0.0
