"""Newcomers: children of organelles that can pay a dowry, and elites that are founded anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from symbiont_ecology.adapters.operators import operators, with_arity
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import RULE, Birth, Decision, Found, Inheritance, Organelle
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

MUTANTS = 0.1
"""Share of children whose rule of learning is drawn anew, where there are several."""


@mechanisms.register("breeding")
@dataclass(frozen=True)
class Breeding(Mechanism):
    """The rich breed while there is room; a child has its parent's weights, and its learning rate,
    varied."""

    at: NonNegativeInt = 1_000_000  # balance from which an organelle breeds, in mATP
    inheritance: Inheritance = "lamarckian"  # learning is handed down; darwinian: it is not
    spread: NonNegativeFloat = 0.3  # std of a child's log learning rate around its parent's, >= 0
    mutation: Spec = "clone"  # operator on a child's weights, such as svd_noise

    def __post_init__(self) -> None:
        with_arity(self.mutation, 1)

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """One child for everyone who is rich, in a drawn order, until there is no place left."""
        enough = max(self.at, context.prices.dowry)
        state, draw = context.state, context.draw
        rich = [o for o in state.population.values() if state.ledger.balance(o.id) >= enough]
        if not rich:
            return []
        order = draw("breeders").permutation(len(rich))[: room.places]
        return [self._child(rich[index], draw) for index in order]

    def _child(self, parent: Organelle, draw: Draw) -> Birth:
        generator, traits = draw("traits", parent.id), dict(parent.genome.traits)
        traits["learning_rate"] *= float(np.exp(self.spread * generator.standard_normal()))
        if RULE in traits and generator.random() < MUTANTS:
            traits[RULE] = generator.random()
        operator, name = operators.build(self.mutation), kind_of(self.mutation)
        return Birth((parent.id,), operator, name, traits, self.inheritance)


@mechanisms.register("refounding")
@dataclass(frozen=True)
class Refounding(Mechanism):
    """A population below a least size gets elites of cells that are drawn by price, or fresh
    founders while there are no elites."""

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
