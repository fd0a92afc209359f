"""Strategies of worlds with habitats in which every habitat has a server: what they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Found, Habitat, Serve
from symbiont_ecology.strategies import LearningStrategy, StrategyContext, assignments
from symbiont_ecology.types import OrganelleId

MEALS = 4
"""Learning steps of a new adapter on what its habitats accepted, before it answers anything."""


@dataclass(frozen=True)
class Serving(LearningStrategy):
    """Every question goes to the server of its habitat. Nobody goes bankrupt.

    It begins with one organelle. A habitat without a server asks anybody, by draw. A subclass says
    who serves whom.
    """

    fits_habitats: ClassVar[bool] = True
    needs_habitats: ClassVar[bool] = True

    def found(self, context: StrategyContext) -> list[Decision]:
        """The founder, if nobody lives; it starts as the host itself (B = 0), or warm."""
        return [] if context.state.population else [Found(self.traits, context.rank)]

    def servers(
        self, names: Sequence[str], context: StrategyContext, generator: np.random.Generator
    ) -> list[OrganelleId]:
        """The living organelle that each of these habitats asks now. Somebody lives."""
        state = context.state
        return [chosen(name, state) or by_draw(state, generator) for name in names]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """Each question to the server of its habitat; none if nobody lives."""
        items, generator = context.tasks.questions(context.state.generation), context.draw("serve")
        if not context.state.population:
            return []
        servers = self.servers([item.habitat for item in items], context, generator)
        assigned = assignments(zip(servers, items, strict=True), self.samples)
        return self.sampled(assigned, context)


def by_draw(state: EcologyState, generator: np.random.Generator) -> OrganelleId:
    """Anybody alive."""
    living = list(state.population)
    return living[int(generator.integers(len(living)))]


def chosen(name: str, state: EcologyState) -> OrganelleId | None:
    """The server that was chosen for a habitat, if it is alive."""
    habitat = state.habitats.get(name)
    return habitat.chosen if habitat and habitat.chosen in state.population else None


def asked(context: StrategyContext) -> list[str]:
    """The habitats that asked in this generation, in the order of asking."""
    return list(
        dict.fromkeys(
            outcome.assignment.items[0].habitat
            for outcome in context.outcomes
            if outcome.assignment.is_practice
        )
    )


def moves(servers: Iterable[tuple[str, OrganelleId]], state: EcologyState) -> list[Serve]:
    """The decision that makes them the servers, as far as they are new; none without a change."""
    new = {
        name: server
        for name, server in servers
        if state.habitats.get(name, Habitat()).chosen != server
    }
    return [Serve(new)] if new else []
