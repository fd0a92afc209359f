"""Merging: a child of two organelles goes on probation, and takes over if it beats both.

On probation a challenger and its parents answer the same fresh questions, and are compared.
"""

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
    Decision,
    EcologyState,
    Judge,
    Outcome,
    ProposeChild,
)
from symbiont_ecology.ecology.gate import Challenger, Gate, PairedCounts, Ruling
from symbiont_ecology.ecology.strategies import StrategyContext, World
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

BY = "merging"
ORPHANED = Ruling("reject", "a parent died")
_Verdicts = dict[tuple[str, Item, int], float]
"""By cell, item, and how often the item had come before."""


@mechanisms.register("merging")
@dataclass(frozen=True)
class Merging(Mechanism):
    """Two organelles have a child, which lives if it is proven to be better than both.

    Child and parents answer the same fresh questions of the cells where the parents are at home.
    The child is admitted when it is proven to be better than either parent over all of them, and to
    lose little to each parent where that one is at home.
    """

    every: PositiveInt = 20  # generations between two proposals
    at: NonNegativeInt = 400_000  # balance from which an organelle may propose a child, in mATP
    operator: Spec = "svd"  # parents' weights to the child's
    questions: PositiveFloat = 1  # per cell and generation; below one, one in some generations
    gate: Gate = field(default_factory=Gate)  # what the child must show
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})  # no habitat asks its questions

    def __post_init__(self) -> None:
        with_arity(self.operator, 2)

    def ask(self, context: StrategyContext) -> list[Assignment]:
        assignments, state = list[Assignment](), context.state
        # Questions are whole, so every look of the gate sees the same mix of cells.
        if state.generation % max(round(1 / self.questions), 1):
            return []
        for challenger in _challengers(state):
            if not has_parents(challenger, state):
                continue
            names = {name for cells in challenger.cells.values() for name in cells}
            for cell in context.tasks.cells:
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
        for challenger in _challengers(context.state):
            newest = with_new_counts(challenger, context.outcomes)
            is_rival = has_parents(newest, context.state)
            ruling = self._judge(newest, room) if is_rival else ORPHANED
            decisions.append(Judge(newest, ruling.verdict, ruling.reason))
        return [*decisions, *self._propose(context)]

    def _propose(self, context: StrategyContext) -> list[Decision]:
        """Draw two, now and then, that are at home somewhere and can pay for a probation."""
        state = context.state
        if _challengers(state) or state.generation % self.every != self.every - 1:
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
                by=BY,
            )
        ]

    def _judge(self, challenger: Challenger, room: Room) -> Ruling:
        """Decide on a challenger whose parents are alive, by its newest counts."""
        counts = challenger.counts
        everywhere = [sum(by_home.values(), PairedCounts()) for by_home in counts.values()]
        at_home = [by_home[home] for home, by_home in counts.items()]
        ruling = self.gate.rule(everywhere, at_home)
        is_full = not room.places or room.ranks < challenger.genome.rank
        return Ruling("go on") if ruling.verdict == "admit" and is_full else ruling


def _challengers(state: EcologyState) -> list[Challenger]:
    return [challenger for challenger in state.challengers.values() if challenger.by == BY]


def has_parents(challenger: Challenger, state: EcologyState) -> bool:
    """Return true if all its parents are still alive."""
    return all(parent in state.population for parent in challenger.parents)


def homes(organelle_id: OrganelleId, state: EcologyState) -> tuple[str, ...]:
    """Return the cells, by name, where an organelle is the archive's elite."""
    elites = sorted(state.archive.elites.items())
    return tuple(name for name, elite in elites if elite.organelle_id == organelle_id)


def with_new_counts(challenger: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """Return a challenger with the paired answers of one more generation."""
    verdicts: dict[OrganelleId, _Verdicts] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.assignment.purpose == "probation":
            cell, seen = cell_name(outcome.assignment.cell), Counter[Item]()
            for rollout in outcome.rollouts:
                key = (cell, rollout.item, seen[rollout.item])
                verdicts[rollout.organelle_id][key] = rollout.verdict
                seen[rollout.item] += 1
    counts = {}
    for parent in challenger.parents:
        before = challenger.counts.get(parent, {})
        counts[parent] = {
            home: before.get(home, PairedCounts())
            + _paired(verdicts[challenger.id], verdicts[parent], cells)
            for home, cells in challenger.cells.items()
        }
    return replace(challenger, counts=counts)


def _paired(verdicts: _Verdicts, rivals: _Verdicts, cells: Sequence[str]) -> PairedCounts:
    """Count over the questions of some cells that both were asked: a budget may have left one
    out."""
    pairs = PairedCounts()
    for key in verdicts.keys() & rivals.keys():
        if key[0] in cells:
            gap = verdicts[key] - rivals[key]
            pairs += PairedCounts(int(gap > 0), int(gap == 0), int(gap < 0))
    return pairs
