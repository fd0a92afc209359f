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
    Outcome,
    PairedCounts,
    Probation,
    Propose,
)
from symbiont_ecology.operators import with_arity
from symbiont_ecology.registry import Spec, kind_of
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.strategies.probation import asked, has_parents, homes, on_probation, seen


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

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """To every child on probation and to its parents the same questions."""
        children = on_probation(state, "merging")
        return [t for child in children for t in asked(child, self.questions, state, scene, draw)]

    def tell(
        self,
        state: EcologyState,
        outcomes: Sequence[Outcome],
        scene: StrategyContext,
        room: Room,
        draw: Draw,
    ) -> Sequence[Decision]:
        """What became of those on probation; and now and then a new proposal."""
        children = on_probation(state, "merging")
        decisions: list[Decision] = [
            self._look_at(child, state, outcomes, room) for child in children
        ]
        if not children and state.generation % self.every == self.every - 1:
            decisions += self._propose(state, scene, draw)
        return decisions

    def _propose(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> list[Propose]:
        """Two who are at home somewhere and rich enough for a probation, by draw."""
        enough = max(self.at, scene.prices.dowry // 2)
        rich = [
            organelle_id
            for organelle_id in state.population
            if state.ledger.balance(organelle_id) >= enough
        ]
        cells = {
            organelle_id: own
            for organelle_id in sorted(rich)
            if (own := homes(organelle_id, state))
        }
        able = list(cells)
        if len(able) < 2:
            return []
        one, other = draw("parents").permutation(len(able))[:2]
        pair = able[one], able[other]
        traits = dict(state.population[pair[0]].genome.traits)
        homes_of = {organelle_id: cells[organelle_id] for organelle_id in pair}
        operator, name = with_arity(self.operator, 2), kind_of(self.operator)
        return [Propose(homes_of, operator, name, traits, scene.rank, by="merging")]

    def _look_at(
        self, child: Challenger, state: EcologyState, outcomes: Sequence[Outcome], room: Room
    ) -> Probation:
        child = seen(child, outcomes)
        if not has_parents(child, state):
            return Probation(child, "reject")
        everywhere = [sum(by_home.values(), PairedCounts()) for by_home in child.tallies.values()]
        verdict = self.gate.verdict(
            everywhere, [by_home[home] for home, by_home in child.tallies.items()]
        )
        is_full = not room.places or room.ranks < child.genome.rank
        return Probation(child, "go on" if verdict == "admit" and is_full else verdict)
