"""Comparing a child with its parents: the same fresh questions for all, and what came of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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

Answers = dict[tuple[str, Item, int], float]


def on_probation(state: EcologyState, by: str) -> list[Challenger]:
    """Those that a mechanism judges."""
    return [child for child in state.challengers.values() if child.by == by]


def has_parents(child: Challenger, state: EcologyState) -> bool:
    """Whether all of them are still alive."""
    return all(parent in state.population for parent in child.parents)


def homes(organelle_id: OrganelleId, state: EcologyState) -> tuple[str, ...]:
    """The cells, by name, where an organelle is the archive's elite."""
    return tuple(
        name
        for name, elite in sorted(state.archive.elites.items())
        if elite.organelle_id == organelle_id
    )


def asked(
    child: Challenger, questions: float, state: EcologyState, scene: StrategyContext, draw: Draw
) -> list[Assignment]:
    """To a child on probation and to its parents the same questions, in each cell where one is at
    home.

    With fewer than one question per cell and generation, some generations have none: every look
    that the gate takes has to see the same mix of cells. So ``questions`` counts as the nearest
    whole number, or as one in the nearest whole number of generations.
    """
    if not has_parents(child, state) or state.generation % max(round(1 / questions), 1):
        return []
    names = {name for cells in child.cells.values() for name in cells}
    trials = []
    for cell in (cell for cell in scene.tasks.cells if cell_name(cell) in names):
        items = scene.tasks.draw(cell, max(round(questions), 1), draw("probation", child.id, *cell))
        trials += [
            Assignment(organelle_id, items, purpose="probation")
            for organelle_id in (child.id, *child.parents)
        ]
    return trials


def seen(child: Challenger, outcomes: Sequence[Outcome]) -> Challenger:
    """The child with a generation more in its tallies."""
    answers: dict[OrganelleId, Answers] = defaultdict(dict)
    for outcome in outcomes:
        if outcome.trial.purpose == "probation":
            cell = cell_name(outcome.trial.cell)
            met = Counter[Item]()  # the same question may come twice
            for item, verdict in zip(outcome.trial.items, outcome.verdicts, strict=True):
                answers[outcome.trial.organelle_id][cell, item, met[item]] = verdict
                met[item] += 1
    tallies = {}
    for parent in child.parents:
        before = child.tallies.get(parent, {})
        tallies[parent] = {
            home: before.get(home, PairedCounts())
            + _compared(answers[child.id], answers[parent], cells)
            for home, cells in child.cells.items()
        }
    return replace(child, tallies=tallies)


def _compared(
    own: Answers, others: Mapping[tuple[str, Item, int], float], cells: Sequence[str]
) -> PairedCounts:
    """Of the questions of some cells that both were asked: a budget may have left one of them
    out."""
    tally = PairedCounts()
    for key in own.keys() & others.keys():
        if key[0] in cells:
            gap = own[key] - others[key]
            tally += PairedCounts(int(gap > 0), int(gap == 0), int(gap < 0))
    return tally
