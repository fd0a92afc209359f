"""Probation: a challenger and its parents answer the same fresh questions, and are compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import (
    Assignment,
    Challenger,
    EcologyState,
    Outcome,
    PairedCounts,
    cell_name,
)
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.types import Item, OrganelleId

_Verdicts = dict[tuple[str, Item, int], float]
"""By cell, item, and how often the item had come before."""


def on_probation(state: EcologyState, by: str) -> list[Challenger]:
    """The challengers that a mechanism judges."""
    return [challenger for challenger in state.challengers.values() if challenger.by == by]


def has_parents(challenger: Challenger, state: EcologyState) -> bool:
    """Whether all its parents are still alive."""
    return all(parent in state.population for parent in challenger.parents)


def homes(organelle_id: OrganelleId, state: EcologyState) -> tuple[str, ...]:
    """The cells, by name, where an organelle is the archive's elite."""
    elites = sorted(state.archive.elites.items())
    return tuple(name for name, elite in elites if elite.organelle_id == organelle_id)


def comparison_questions(
    challenger: Challenger,
    questions: float,
    state: EcologyState,
    context: StrategyContext,
    draw: Draw,
) -> list[Assignment]:
    """The same questions to a challenger and its parents, in each cell where a parent is at home.

    Every look of the gate must see the same mix of cells. So ``questions`` counts as the nearest
    whole number; or, below one per cell and generation, as one in the nearest whole number of
    generations.
    """
    if not has_parents(challenger, state) or state.generation % max(round(1 / questions), 1):
        return []
    names = {name for cells in challenger.cells.values() for name in cells}
    count, assignments = max(round(questions), 1), []
    for cell in context.tasks.cells:
        if cell_name(cell) in names:
            generator = draw("probation", challenger.id, *cell)
            items = context.tasks.draw(cell, count, generator)
            assignments += [
                Assignment(organelle_id, items, purpose="probation")
                for organelle_id in (challenger.id, *challenger.parents)
            ]
    return assignments


def with_new_counts(challenger: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """The challenger with the paired answers of one more generation."""
    verdicts: dict[OrganelleId, _Verdicts] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.assignment.purpose == "probation":
            cell, seen = cell_name(outcome.assignment.cell), Counter[Item]()
            own = verdicts[outcome.assignment.organelle_id]
            for rollout in outcome.rollouts:
                own[cell, rollout.item, seen[rollout.item]] = rollout.verdict
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
