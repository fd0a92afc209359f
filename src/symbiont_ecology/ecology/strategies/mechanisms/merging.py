"""Merging: a child of two organelles goes on probation, and takes over if it beats both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.adapters.operators import with_arity
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.ecology import Decision, EcologyState, ProposeChild
from symbiont_ecology.ecology.gate import Challenger, Gate, PairedCounts, Ruling
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import (
    ProbationMechanism,
    Room,
    homes,
    mechanisms,
)


@mechanisms.register("merging")
@dataclass(frozen=True)
class Merging(ProbationMechanism):
    """Two organelles have a child, which lives if it is proven to be better than both.

    Child and parents answer the same fresh questions of the cells where the parents are at home.
    The child is admitted when it is proven to be better than either parent over all of them, and to
    lose little to each parent where that one is at home.
    """

    every: PositiveInt = 20  # generations between two proposals
    at: NonNegativeInt = 400_000  # balance from which an organelle may propose a child, in mATP
    operator: Spec = "svd"  # parents' weights to the child's
    questions: PositiveFloat = 1  # per cell and generation
    gate: Gate = field(default_factory=Gate)  # what the child must show
    by: ClassVar[str] = "merging"

    def __post_init__(self) -> None:
        with_arity(self.operator, 2)

    def propose(self, context: StrategyContext) -> list[Decision]:
        """Now and then draw two that are at home somewhere and can pay for a probation."""
        state = context.state
        if self.busy(state) or state.generation % self.every != self.every - 1:
            return []
        enough = max(self.at, context.prices.dowry // 2)
        rich = sorted(name for name in state.population if state.ledger.balance(name) >= enough)
        cells = {name: home for name in rich if (home := homes(name, state))}
        able = list(cells)
        if len(able) < 2:
            return []
        pair = [able[index] for index in context.draw("parents").permutation(len(able))[:2]]
        return [
            ProposeChild(
                {organelle_id: cells[organelle_id] for organelle_id in pair},
                with_arity(self.operator, 2),
                kind_of(self.operator),
                traits=dict(state.population[pair[0]].genome.traits),
                rank=context.rank,
                by=self.by,
            )
        ]

    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> Ruling:
        counts = challenger.counts
        everywhere = [sum(by_home.values(), PairedCounts()) for by_home in counts.values()]
        at_home = [by_home[home] for home, by_home in counts.items()]
        ruling = self.gate.rule(everywhere, at_home)
        is_full = not room.places or room.ranks < challenger.genome.rank
        return Ruling("go on") if ruling.verdict == "admit" and is_full else ruling
