"""Merging: two organelles have a child, which lives if a trial proves it better than both."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from symbiont_ecology.adapters.operators import with_arity
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import Decision, Gate, Merge
from symbiont_ecology.ecology.strategies import StrategyContext, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("merging")
@dataclass(frozen=True)
class Merging(Mechanism):
    """Two organelles have a child, which lives if it is proven to be better than both.

    Now and then two are drawn that are at home somewhere and can pay for a child. Child and parents
    answer the same fresh questions of the cells where the parents are at home, until the gate says
    admit or reject.
    """

    every: PositiveInt = 20  # generations between two proposals
    at: NonNegativeInt = 400_000  # balance from which an organelle may have a child, in mATP
    operator: Spec = "svd"  # parents' weights to the child's
    questions: PositiveInt = 4  # per cell and look of the gate
    gate: Gate = field(default_factory=Gate)  # what the child must show
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})  # no user asks its questions

    def __post_init__(self) -> None:
        with_arity(self.operator, 2)

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        state = context.state
        if state.generation % self.every != self.every - 1 or not room.places:
            return []
        homes: dict[OrganelleId, list[str]] = defaultdict(list)
        for name, elite in sorted(state.archive.elites.items()):
            homes[elite.organelle_id].append(name)
        enough = max(self.at, context.prices.dowry // 2)
        rich = sorted(name for name in state.population if state.ledger.balance(name) >= enough)
        able = [name for name in rich if name in homes]
        if len(able) < 2:
            return []
        pair = [able[index] for index in context.draw("parents").permutation(len(able))[:2]]
        cells = {parent: tuple(homes[parent]) for parent in pair}
        traits = dict(state.population[pair[0]].genome.traits)
        operator, name = with_arity(self.operator, 2), kind_of(self.operator)
        return [Merge(cells, operator, name, traits, self.gate, self.questions)]
