"""M2N2: natural niches by competition for questions, and mates that complete each other.

Abrantes, Lange and Tang 2025 (arXiv:2508.16204): every question is a resource of capacity one,
which those who answer it share. So it pays to answer what few others can. A first parent is drawn
by what it earns, a second one by what it earns where the first earns little. The child is their
merge with a split point, and the least fit leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import PositiveInt

from symbiont_ecology.ecology import Birth, Decision, Retire
from symbiont_ecology.operators import with_arity
from symbiont_ecology.registry import Spec, kind_of
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.exams import Marks
from symbiont_ecology.strategies.experts import ExpertStrategy
from symbiont_ecology.strategies.genetic import Offspring
from symbiont_ecology.types import OrganelleId


@strategies.register("m2n2")
@dataclass(frozen=True)
class M2N2(ExpertStrategy):
    """Competition and attraction. It differs from the paper in that several children are born at
    once, and that all of them are mutated, which the paper does where it starts from nothing."""

    population: PositiveInt = 4  # founders, and how many stay
    offspring: PositiveInt = 6  # children of a generation
    crossover: Spec = field(default_factory=lambda: "split")  # operator of two parents
    mutation: Spec = field(default_factory=lambda: {"kind": "gaussian", "sigma": 0.1})  # of one
    compares_rewards: ClassVar[bool] = False  # they are shared, so none is below 0

    def __post_init__(self) -> None:
        super().__post_init__()
        with_arity(self.crossover, 2)
        with_arity(self.mutation, 1)

    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """The least fit leave, one after the other, as each makes room at its questions."""
        rest = dict(marks)
        while len(rest) > self.population:
            fitness = {name: sum(own.values()) for name, own in niche_shares(rest).items()}
            del rest[min(fitness, key=fitness.__getitem__)]
        shares = niche_shares(rest)
        exits: list[Decision] = [Retire(name, "outcompeted") for name in marks if name not in rest]
        return exits + [self._child(shares, number, context) for number in range(self.offspring)]

    def _child(
        self, shares: Mapping[OrganelleId, Marks], number: int, context: StrategyContext
    ) -> Birth:
        """A child of two who complete each other."""
        generator = context.draw("mates", number)
        first = _one_of({name: sum(own.values()) for name, own in shares.items()}, generator)
        attractions = {name: attraction(own, shares[first]) for name, own in shares.items()}
        if len(attractions) > 1:
            del attractions[first]
        operator = Offspring(self.crossover, self.mutation)
        name = f"{kind_of(self.crossover)} and {kind_of(self.mutation)}"
        traits = context.state.population[first].genome.traits
        return Birth((first, _one_of(attractions, generator)), operator, name, traits)


def niche_shares(marks: Mapping[OrganelleId, Marks]) -> dict[OrganelleId, dict[str, float]]:
    """What everyone gets of each question, of which there is one for all."""
    total = Counter[str]()
    for own in marks.values():
        total.update({item: max(mark, 0.0) for item, mark in own.items()})
    return {
        name: {item: max(mark, 0.0) / total[item] for item, mark in own.items() if total[item] > 0}
        for name, own in marks.items()
    }


def attraction(own: Marks, of_mate: Marks) -> float:
    """What one gets where a mate gets less."""
    return sum(max(share - of_mate[item], 0.0) for item, share in own.items())


def _one_of(weights: Mapping[OrganelleId, float], generator: Generator) -> OrganelleId:
    """By draw in proportion to the weights; anybody where all are zero."""
    names, chances = list(weights), np.array(list(weights.values()))
    shares = chances / chances.sum() if chances.any() else None
    return names[int(generator.choice(len(names), p=shares))]
