"""What lived in a run and on what: niches, specialists, division of labour, recovery. From its
events alone.

An organelle's behaviour is where it earns: its verified answers of some generations, by cell or by
convention group. What it could do but is never asked leaves no trace in a log, and none in an
ecology either.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.events import Acted, Event, GenerationEnded, Settled
from symbiont_ecology.extensions.evoscope import history as columns
from symbiont_ecology.extensions.evoscope.history import Taxon
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.types import OrganelleId, cell_family

MAJORITY = 0.5
"""Part of its verified answers from which an organelle is a specialist, and of what it was asked
there."""


@dataclass(frozen=True)
class Work:
    """What one organelle did in one cell in one generation, in rollouts."""

    organelle_id: OrganelleId
    cell: str
    asked: int
    right: int


@dataclass(frozen=True)
class History:
    """A log by generation: ``work[g]`` was practised and ``alive[g]`` lived in generation g."""

    taxa: Mapping[OrganelleId, Taxon]
    work: Sequence[Sequence[Work]]
    alive: Sequence[frozenset[OrganelleId]]

    @property
    def generations(self) -> int:
        """How many generations were lived."""
        return len(self.alive)

    def earned(self, start: int, stop: int) -> dict[OrganelleId, Counter[str]]:
        """Verified answers of the generations from ``start`` to before ``stop``, by organelle and
        cell."""
        answers: dict[OrganelleId, Counter[str]] = defaultdict(Counter)
        for works in self.work[max(start, 0) : stop]:
            for work in works:
                answers[work.organelle_id][work.cell] += work.right
        return answers

    def served(self, demand: int) -> np.ndarray:
        """Verified answers of each generation, as parts of the rollouts that the world asked for.

        Questions that nobody could pay for count as not answered. Shape ``(generations,)``.
        """
        return np.array([sum(work.right for work in works) / demand for works in self.work])

    def line(self, organelle_id: OrganelleId) -> set[OrganelleId]:
        """An organelle and all that descend from it."""
        members = {organelle_id}
        for name, taxon in self.taxa.items():  # in the order of birth
            if members.intersection(taxon.ancestors):
                members.add(name)
        return members


def read_history(events: Iterable[Event]) -> History:
    """The history of a log."""
    log = list(events)
    work: dict[int, list[Work]] = defaultdict(list)
    alive: dict[int, set[OrganelleId]] = defaultdict(set)
    for event in log:
        if isinstance(event, Acted) and event.purpose == "practice":
            right = round(sum(event.verdicts))
            work[event.generation].append(Work(event.id, event.cell, len(event.verdicts), right))
        elif isinstance(event, Settled):
            alive[event.generation].add(event.id)
    ends = (event.generation for event in log if isinstance(event, Settled | GenerationEnded))
    span = range(max(ends, default=-1) + 1)
    taxa = columns.History.of(columns.UNKNOWN, log).taxa
    return History(taxa, [work[g] for g in span], [frozenset(alive[g]) for g in span])


def group_of(cell: str) -> str:
    """The convention group of a cell, ``"family/depth"``; families that are data are one group."""
    family = cell_family(cell)
    task = tasks.build(family) if family in tasks.names() else None
    return task.group if isinstance(task, SyntheticTask) else "written"


def by_group(earned: Mapping[OrganelleId, Counter[str]]) -> dict[OrganelleId, Counter[str]]:
    """The same by convention group instead of by cell."""
    groups: dict[OrganelleId, Counter[str]] = defaultdict(Counter)
    for organelle_id, cells in earned.items():
        for cell, count in cells.items():
            groups[organelle_id][group_of(cell)] += count
    return groups


def specialists(
    history: History, stop: int, window: int, least: int = 10
) -> dict[OrganelleId, str]:
    """The group of everyone who was a specialist in the ``window`` generations before ``stop``.

    That is whoever was alive in the last of them, gave at least ``least`` verified answers, most of
    them in one convention group, and was right there more often than not.
    """
    start = max(stop - window, 0)
    asked: Counter[tuple[OrganelleId, str]] = Counter()
    for works in history.work[start:stop]:
        for work in works:
            asked[work.organelle_id, group_of(work.cell)] += work.asked
    trades = {}
    for organelle_id, groups in by_group(history.earned(start, stop)).items():
        (group, right), total = groups.most_common(1)[0], groups.total()
        is_sure = (
            right > MAJORITY * total >= MAJORITY * least
            and right > MAJORITY * asked[organelle_id, group]
        )
        if is_sure and organelle_id in history.alive[stop - 1]:
            trades[organelle_id] = group
    return trades


@dataclass(frozen=True)
class TraitInheritance:
    """How often a child earns most in the group in which its first parent does, among those who
    earned."""

    children: int
    same: float  # part of them
    chance: float  # the same if parents were drawn at random


def inheritance(history: History, least: int = 10) -> TraitInheritance:
    """Whether trades run in families, from whole lives with at least ``least`` verified answers."""
    groups = by_group(history.earned(0, history.generations))
    trade = {
        organelle_id: of.most_common(1)[0][0]
        for organelle_id, of in groups.items()
        if of.total() >= least
    }
    pairs = [
        (trade[organelle_id], trade[taxon.ancestors[0]])
        for organelle_id, taxon in history.taxa.items()
        if organelle_id in trade and taxon.ancestors and taxon.ancestors[0] in trade
    ]
    if not pairs:
        return TraitInheritance(0, math.nan, math.nan)
    children, parents = (Counter(side) for side in zip(*pairs, strict=True))
    chance = sum(children[group] * parents[group] for group in children) / len(pairs) ** 2
    return TraitInheritance(
        len(pairs), sum(child == parent for child, parent in pairs) / len(pairs), chance
    )


def effective_specialists(earned: Mapping[OrganelleId, Counter[str]]) -> float:
    """How many different trades there are: 1 if all do the same, k if k groups of organelles share
    nothing.

    The exponential of the mutual information between who answered and what was answered (division
    of labour, Gorelick et al. 2004; as an effective number, Jost 2007), with its bias in small
    samples taken off (Miller 1955). NaN where nobody earned anything.
    """
    names = sorted({name for counts in earned.values() for name in counts})
    table = np.array([[counts[name] for name in names] for counts in earned.values()], dtype=float)
    table = table[table.any(axis=1)][:, table.any(axis=0)] if table.size else table
    if not table.size:
        return math.nan
    joint = table / table.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    shared = float((joint[joint > 0] * np.log(joint[joint > 0] / independent[joint > 0])).sum())
    bias = (table.shape[0] - 1) * (table.shape[1] - 1) / (2 * table.sum())
    return math.exp(max(shared - bias, 0.0))


def longest(is_so: Sequence[bool]) -> int:
    """The most entries in a row that are true."""
    best = length = 0
    for holds in is_so:
        length = length + 1 if holds else 0
        best = max(best, length)
    return best


@dataclass(frozen=True)
class Recovery:
    """What a shock did to a curve, until it was back or ended."""

    before: float  # mean over the window before the shock
    drop: float  # from there to the lowest generation
    time: int | None  # generations until it was back; None where it never was
    lost: float  # what lies between the level before and the curve, summed over generations


def recovery(
    curve: Sequence[float] | np.ndarray, shock: int, window: int = 10, tolerance: float = 0.05
) -> Recovery:
    """How far a curve falls at generation ``shock``, and how long it takes to come back.

    Resistance and return time (Pimm 1984), of a stated thing to a stated shock (Carpenter et al.
    2001).

    It is back at the first generation that begins a ``window`` whose mean is at least
    ``1 − tolerance`` times that of the window before the shock.

    Raises:
        ValueError: there is no whole window on both sides of the shock.
    """
    values = np.asarray(curve, dtype=float)
    if not window <= shock <= len(values) - window:
        raise ValueError(
            f"expected {window} generations on both sides of {shock}, got {len(values)} in all"
        )
    before = float(values[shock - window : shock].mean())
    means = np.lib.stride_tricks.sliding_window_view(values[shock:], window).mean(axis=1)
    back = np.flatnonzero(means >= (1 - tolerance) * before)
    time = int(back[0]) if len(back) else None
    fallen = before - values[shock : None if time is None else shock + max(time, 1)]
    return Recovery(before, max(float(fallen.max()), 0.0), time, float(np.maximum(fallen, 0).sum()))
