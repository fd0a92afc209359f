"""Control: one adapter per habitat; a newcomer begins with a copy of its nearest neighbour's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.ecology import Colonise, Decision, Habitat
from symbiont_ecology.ecology.clusters import prior_in, stats_of
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
        state, near = context.state, _nearest_of(names, context)
        return [chosen(name, state) or near[name][0] or by_draw(state, generator) for name in names]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """An adapter for every habitat that accepted enough."""
        state, decisions = context.state, list[Decision]()
        ready = [
            name
            for name in asked(context)
            if not chosen(name, state) and len(state.habitats[name].accepted) >= self.accepted
        ]
        for name, (neighbour, likeness) in _nearest_of(ready, context).items():
            weights = state.genome(neighbour).weights if neighbour and likeness > 0 else None
            decisions.append(Colonise((name,), self.traits, context.rank, MEALS, weights))
        return [*decisions, *self.found(context)]


def _nearest_of(
    names: Sequence[str], context: StrategyContext
) -> dict[str, tuple[OrganelleId | None, float]]:
    """For each habitat without an adapter of its own: the adapter of the one that is most like it,
    and by how much, in nats; None if nothing is known."""
    state, families = context.state, context.tasks.names
    diets = {
        server: diet
        for name, habitat in state.habitats.items()
        if (server := chosen(name, state))
        and not (diet := stats_of(habitat.answers, families)).is_empty
    }
    prior, nearest = prior_in(state), dict[str, tuple[OrganelleId | None, float]]()
    for name in dict.fromkeys(names):
        answers = state.habitats.get(name, Habitat()).answers
        taste = stats_of(answers, families, refusal_weight=prior.refusal_weight)
        if chosen(name, state) or taste.is_empty or not diets:
            nearest[name] = None, 0.0
            continue
        agreements = prior.all_log_odds(list(diets.values()), taste)
        best = int(agreements.argmax())
        nearest[name] = list(diets)[best], float(agreements[best])
    return nearest
