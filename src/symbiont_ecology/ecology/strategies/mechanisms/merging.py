"""Merging: a child of two organelles goes on probation, and takes over if it beats both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.adapters.operators import with_arity
from symbiont_ecology.base.registry import Spec, kind_of
from symbiont_ecology.base.types import Item, OrganelleId, cell_name
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
from symbiont_ecology.ecology.strategies import StrategyContext, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms


@mechanisms.register("merging")
@dataclass(frozen=True)
class Merging(Mechanism):
    """Two organelles have a child, which lives if it is proven to be better than both.

    Child and parents answer the same fresh questions of the cells where the parents are at home.
    The child is admitted when it is proven to be better than either parent over all of them.
    """

    every: PositiveInt = 20  # generations between two proposals
    at: NonNegativeInt = 400_000  # balance from which an organelle may propose a child, in mATP
    operator: Spec = "svd"  # parents' weights to the child's
    questions: PositiveFloat = 1  # per cell and generation; below one, one in some generations
    gate: Gate = field(default_factory=Gate)  # what the child must show
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})  # no user asks its questions

    def __post_init__(self) -> None:
        with_arity(self.operator, 2)

    def ask(self, context: StrategyContext) -> list[Assignment]:
        assignments, state = list[Assignment](), context.state
        # Questions are whole, so every look of the gate sees the same mix of cells.
        if state.generation % max(round(1 / self.questions), 1):
            return []
        for challenger in state.challengers.values():
            names = {name for cells in challenger.cells.values() for name in cells}
            for cell in context.tasks.cells if has_parents(challenger, state) else ():
                if cell_name(cell) in names:
                    generator = context.draw("probation", challenger.id, *cell)
                    items = context.tasks.draw(cell, max(round(self.questions), 1), generator)
                    assignments += [
                        Assignment(organelle_id, items, purpose="probation")
                        for organelle_id in (challenger.id, *challenger.parents)
                    ]
        return assignments

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        decisions = list[Decision]()
        for challenger in context.state.challengers.values():
            if not has_parents(challenger, context.state):
                decisions.append(Judge(challenger, "reject", "a parent died"))
                continue
            newest = with_new_counts(challenger, context.outcomes)
            decision = self.gate.rule(newest.counts.values())
            is_full = not room.places or room.ranks < newest.genome.rank
            waits = decision == "admit" and is_full
            decisions.append(Judge(newest, "go on" if waits else decision))
        return decisions or self._propose(context)

    def _propose(self, context: StrategyContext) -> list[Decision]:
        """Draw two, now and then, that are at home somewhere and can pay for a probation."""
        state = context.state
        if state.generation % self.every != self.every - 1:
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
        return [ProposeChild(cells, operator, name, traits)]


def has_parents(challenger: Challenger, state: EcologyState) -> bool:
    """Return true if all its parents are still alive."""
    return all(parent in state.population for parent in challenger.parents)


def with_new_counts(challenger: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """Return a challenger with the paired answers of one more generation."""
    verdicts: dict[OrganelleId, dict[tuple[Item, int], float]] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.assignment.purpose == "probation":
            answered = Counter[Item]()  # a question may come several times
            for rollout in outcome.rollouts:
                key = rollout.item, answered[rollout.item]
                verdicts[rollout.organelle_id][key] = rollout.verdict
                answered[rollout.item] += 1
    own, counts = verdicts[challenger.id], dict[OrganelleId, PairedCounts]()
    for parent in challenger.parents:
        rival, old = verdicts[parent], challenger.counts.get(parent, PairedCounts())
        # A budget may have left a question out.
        gaps = [own[key] - rival[key] for key in own.keys() & rival.keys()]
        counts[parent] = PairedCounts(
            old.wins + sum(gap > 0 for gap in gaps),
            old.ties + sum(gap == 0 for gap in gaps),
            old.losses + sum(gap < 0 for gap in gaps),
        )
    return replace(challenger, counts=counts)
