"""Births and bodies: the rich breed and grow, the missing are refounded, pioneers follow a change.

Four mechanisms: breeding and refounding, morphogenesis (bodies follow energy) and upheaval (the
world changed).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.adapters.operators import operators, with_arity
from symbiont_ecology.base.registry import Share, Spec, kind_of
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import cell_family
from symbiont_ecology.ecology import (
    Birth,
    Decision,
    DriftDetector,
    DriftResponse,
    Found,
    Inheritance,
    Organelle,
    Resize,
    drift_score,
)
from symbiont_ecology.ecology.strategies import StrategyContext, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

IDLE = 0.5
"""Of an even share of the spectrum: a direction that carries no more may go."""
FALL, SURE_SCORE = 0.3, 3.0
"""Fall of success in a family that counts as fallen, and drift score of its cells that rules out
chance."""
PIONEER = "pioneer"
"""Operator of a founder that comes for fallen families."""
UNREST = 24
"""Generations after a pioneer came in which more families may be found to have fallen."""


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
        """Return one child for everyone who is rich, in a drawn order, until no place is left."""
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
        operator, name = operators.build(self.mutation), kind_of(self.mutation)
        return Birth((parent.id,), operator, name, traits, self.inheritance)


@mechanisms.register("refounding")
@dataclass(frozen=True)
class Refounding(Mechanism):
    """A population below a least size gets elites of cells that are drawn by price, or fresh
    founders while there are no elites."""

    least: PositiveInt = 1  # size below which the population is refounded

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Return as many as are missing now, whoever else is about to be born."""
        state, decisions = context.state, list[Decision]()
        missing = min(self.least - len(state.population), room.places)
        elites = sorted(state.archive.elites.items()) if missing > 0 else []
        worth = np.array([context.prices.price(state.success[name]) for name, _ in elites])
        worth += not worth.any()  # nothing pays: all alike
        for number in range(missing):
            newcomer = Found(dict(room.traits), context.rank)
            if elites:
                generator = context.draw("refound", number)
                _, elite = elites[int(generator.choice(len(elites), p=worth / worth.sum()))]
                newcomer = Found(newcomer.traits, elite.rank, elite.weights, operator="refounded")
            decisions.append(newcomer)
        return decisions


@mechanisms.register("morphogenesis")
@dataclass(frozen=True)
class Morphogenesis(Mechanism):
    """The rich grow in rank where they use all of it, the poor shrink where not, a unit at a time.

    Whether a body is used shows in the spectrum of ΔW: growing asks that its weakest direction
    still carries ``full`` of an even share, shrinking that it carries no more than ``IDLE`` of one.
    """

    every: PositiveInt = 10  # generations between two looks
    rich: PositiveInt = 600_000  # balance from which an organelle may grow, in mATP
    poor: PositiveInt = 100_000  # balance below which it may shrink, in mATP
    full: Share = IDLE  # part of an even share that the weakest direction must carry to grow

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Return who grows and shrinks; who shrinks makes room for growth from the next look on."""
        state = context.state
        if state.generation % self.every != self.every - 1:
            return []
        decisions, left = list[Decision](), room.ranks
        for organelle_id, organelle in state.population.items():
            balance, rank = state.ledger.balance(organelle_id), organelle.genome.rank
            if balance < self.poor and rank > 1:
                decisions.append(Resize(organelle_id, rank - 1, IDLE))
            elif balance >= self.rich and rank < context.rank and left > 0:
                decisions.append(Resize(organelle_id, rank + 1, self.full))
                left -= 1
        return decisions


@mechanisms.register("upheaval")
@dataclass(frozen=True)
class Upheaval(Mechanism):
    """Response to drift: where success falls in many families at once, these get a newcomer.

    Nobody is told that the world changed. Whoever is sure of an answer that is no longer right
    earns nothing to learn from: it goes on being wrong. So a pioneer comes for the fallen families,
    a fresh founder. All others keep their owners: that is what a reset of everything cannot do.
    Whoever was right before may still live when the world changes back. Not every cell was asked
    since the world changed, so for a while more families may follow.
    """

    level: PositiveFloat = 5.0  # drift score at which the world is taken to have changed
    haste: PositiveFloat = 2.0  # the pioneer's learning rate, in units of other founders'
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})  # it looks at families

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Return the response to drift, and a pioneer if there is room; or nothing."""
        state = context.state
        is_shaken = any(
            organelle.operator == PIONEER and state.generation - organelle.born < UNREST
            for organelle in state.population.values()
        )
        if not is_shaken and drift_score(state.drift_detectors.values()) < self.level:
            return []
        fallen = _fallen(state.drift_detectors)
        if not fallen:
            return []
        traits = {**room.traits, "learning_rate": self.haste * room.traits["learning_rate"]}
        if is_shaken or room.places < 1:
            return [DriftResponse(fallen)]
        return [DriftResponse(fallen), Found(traits, context.rank, operator=PIONEER)]


def _fallen(drift_detectors: Mapping[str, DriftDetector]) -> tuple[str, ...]:
    """Return the cells of families in which success fell, in their mean and beyond chance."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in drift_detectors:
        families[cell_family(name)].append(name)
    return tuple(
        name
        for names in families.values()
        if sum(drift_detectors[name].fall for name in names) >= FALL * len(names)
        and drift_score(drift_detectors[name] for name in names) >= SURE_SCORE
        for name in names
    )
