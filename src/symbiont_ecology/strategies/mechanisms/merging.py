"""Two become one: a child of two organelles goes on probation, and takes over if it holds its
own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    Assignment,
    Challenger,
    Decision,
    EcologyState,
    Gate,
    Judge,
    Outcome,
    PairedCounts,
    ProposeChild,
)
from symbiont_ecology.operators import with_arity
from symbiont_ecology.registry import Spec, kind_of
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import (
    comparison_questions,
    has_parents,
    homes,
    on_probation,
    with_new_counts,
)


@mechanisms.register("merging")
@dataclass(frozen=True)
class Merging(Mechanism):
    """Two have a child, which lives if it is proven to be better than both (assimilation).

    Child and parents answer the same fresh questions of the cells where the parents are at home.
    The child is admitted when it is proven to be better than either parent over all of them, and to
    lose little to each parent where that one is at home.
    """

    every: PositiveInt = 20  # generations between two proposals
    at: NonNegativeInt = 400_000  # balance from which an organelle may propose a child, in mATP
    operator: Spec = "svd"  # parents' weights to the child's
    questions: PositiveFloat = 1  # per cell and generation
    gate: Gate = field(default_factory=Gate)  # what the child must show

    def __post_init__(self) -> None:
        with_arity(self.operator, 2)

    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """The same questions to every child on probation and to its parents."""
        return [
            assignment
            for child in on_probation(state, "merging")
            for assignment in comparison_questions(child, self.questions, state, context, draw)
        ]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        context: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of children on probation, and now and then a new proposal."""
        children = on_probation(state, "merging")
        decisions: list[Decision] = [self._judge(one, state, outcomes, room) for one in children]
        if not children and state.generation % self.every == self.every - 1:
            decisions += self._propose(state, context, draw)
        return decisions

    def _propose(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> list[ProposeChild]:
        """Two who are at home somewhere and rich enough for a probation, by draw."""
        enough = max(self.at, context.prices.dowry // 2)
        rich = [one for one in state.population if state.ledger.balance(one) >= enough]
        cells = {one: home for one in sorted(rich) if (home := homes(one, state))}
        able = list(cells)
        if len(able) < 2:
            return []
        pair = [able[index] for index in draw("parents").permutation(len(able))[:2]]
        return [
            ProposeChild(
                {organelle_id: cells[organelle_id] for organelle_id in pair},
                with_arity(self.operator, 2),
                kind_of(self.operator),
                traits=dict(state.population[pair[0]].genome.traits),
                rank=context.rank,
                by="merging",
            )
        ]

    def _judge(
        self, child: Challenger, state: EcologyState, outcomes: Sequence[Outcome], room: Room
    ) -> Judge:
        child = with_new_counts(child, outcomes)
        if not has_parents(child, state):
            return Judge(child, "reject")
        everywhere = [sum(by_home.values(), PairedCounts()) for by_home in child.counts.values()]
        at_home = [by_home[home] for home, by_home in child.counts.items()]
        decision = self.gate.decide(everywhere, at_home)
        is_full = not room.places or room.ranks < child.genome.rank
        return Judge(child, "go on" if decision == "admit" and is_full else decision)
