"""Probation: a challenger and its parents answer the same fresh questions, and are compared."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import ClassVar

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Judge, Outcome, cell_name
from symbiont_ecology.ecology.gate import Challenger, GateDecision, PairedCounts
from symbiont_ecology.operators import Operator
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Mechanism, Room
from symbiont_ecology.types import Item, OrganelleId

_Verdicts = dict[tuple[str, Item, int], float]
"""By cell, item, and how often the item had come before."""


class ProbationMechanism(Mechanism, ABC):
    """A mechanism that puts challengers on probation, and judges its own.

    ``by`` is the name of the mechanism. ``questions`` are asked per cell and generation: the
    nearest whole number of them; or, below one, a single one in the nearest whole number of
    generations. So every look of the gate sees the same mix of cells.
    """

    by: ClassVar[str]
    questions: float = 1

    @property
    def variation(self) -> Operator | None:
        """What makes a variant anew at every look; None where a challenger stays as it is."""
        return None

    @abstractmethod
    def judge(self, challenger: Challenger, state: EcologyState, room: Room) -> GateDecision:
        """What becomes of a challenger whose parents are alive, by its newest counts."""

    @abstractmethod
    def propose(self, context: StrategyContext, busy: Collection[OrganelleId]) -> list[Decision]:
        """New challengers; the busy are parents of some who are on probation."""

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """The same questions to every challenger and its parents, where a parent is at home."""
        assignments = []
        for challenger in self._challengers(context.state):
            names = {name for cells in challenger.cells.values() for name in cells}
            is_due = context.state.generation % max(round(1 / self.questions), 1) == 0
            for cell in context.tasks.cells:
                if is_due and cell_name(cell) in names and has_parents(challenger, context.state):
                    generator = context.draw("probation", challenger.id, *cell)
                    items = context.tasks.draw(cell, max(round(self.questions), 1), generator)
                    assignments += [
                        Assignment(organelle_id, items, purpose="probation")
                        for organelle_id in (challenger.id, *challenger.parents)
                    ]
        return assignments

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """What becomes of those on probation, and who comes next."""
        challengers = self._challengers(context.state)
        newest = [with_new_counts(challenger, context.outcomes) for challenger in challengers]
        judged = [
            Judge(challenger, self.judge(challenger, context.state, room), self.variation)
            if has_parents(challenger, context.state)
            else Judge(challenger, "reject")
            for challenger in newest
        ]
        busy = {parent for challenger in challengers for parent in challenger.parents}
        return [*judged, *self.propose(context, busy)]

    def _challengers(self, state: EcologyState) -> list[Challenger]:
        return [challenger for challenger in state.challengers.values() if challenger.by == self.by]


def has_parents(challenger: Challenger, state: EcologyState) -> bool:
    """Whether all its parents are still alive."""
    return all(parent in state.population for parent in challenger.parents)


def homes(organelle_id: OrganelleId, state: EcologyState) -> tuple[str, ...]:
    """The cells, by name, where an organelle is the archive's elite."""
    elites = sorted(state.archive.elites.items())
    return tuple(name for name, elite in elites if elite.organelle_id == organelle_id)


def with_new_counts(challenger: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """The challenger with the paired answers of one more generation."""
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


def _paired(verdicts: _Verdicts, others: _Verdicts, cells: Sequence[str]) -> PairedCounts:
    """Over the questions of some cells that both were asked: a budget may have left one out."""
    pairs = PairedCounts()
    for key in verdicts.keys() & others.keys():
        if key[0] in cells:
            gap = verdicts[key] - others[key]
            pairs += PairedCounts(int(gap > 0), int(gap == 0), int(gap < 0))
    return pairs
