"""Measures of a population from its events alone: specialists, selection, novelty.

An organelle is described by where it earns: its verified answers of some generations, by cell or by
convention group. What it could do but is never asked leaves no trace in a log.

*Activity* is how much use builds up along lines of descent (usage statistics, Bedau & Packard
1992). Use is a verified answer. Every organelle has a counter that begins where its parent's stands
and grows with its own use. The neutral shadow is a replay of the log with the same births, deaths
and uses, but parents, victims and users are drawn at random (Bedau, Snyder & Packard 1998). Where
counters grow faster, those who are used live longer or leave more offspring: that is selection.

*Potentials* are change, novelty and diversity of what persists (MODES, Dolson et al. 2019). Most
newcomers are noise that selection has not judged yet. So only those count whose line is still there
an ``interval`` later. The world bounds how many kinds there are, and so novelty in the long run.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.base.events import Acted, Event, GenerationEnded, Settled
from symbiont_ecology.base.types import OrganelleId, cell_family
from symbiont_ecology.extensions.evoscope import history as run_history
from symbiont_ecology.extensions.evoscope.history import Taxon
from symbiont_ecology.run.config import load_config
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask

MAJORITY = 0.5
"""Part of its verified answers from which an organelle is a specialist, and of what it was asked
there."""
PART = 0.1
"""Part of its verified answers that a cell has to bring to belong to what an organelle is."""


@dataclass(frozen=True)
class Work:
    """Rollouts of one organelle in one cell in one generation."""

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
        """Number of generations that were lived."""
        return len(self.alive)

    def earned(self, start: int, stop: int) -> dict[OrganelleId, Counter[str]]:
        """Return the verified answers of the generations from ``start`` to before ``stop``."""
        answers: dict[OrganelleId, Counter[str]] = defaultdict(Counter)
        for works in self.work[max(start, 0) : stop]:
            for work in works:
                answers[work.organelle_id][work.cell] += work.right
        return answers

    def served(self, demand: int) -> np.ndarray:
        """Return verified answers of each generation, as parts of the rollouts that were asked for.

        Questions that nobody could pay for count as not answered. Shape ``(generations,)``.
        """
        return np.array([sum(work.right for work in works) / demand for works in self.work])

    def line(self, organelle_id: OrganelleId) -> set[OrganelleId]:
        """Return an organelle and all that descend from it."""
        members = {organelle_id}
        for name, taxon in self.taxa.items():  # in the order of birth
            if members.intersection(taxon.ancestors):
                members.add(name)
        return members


def read_history(events: Iterable[Event]) -> History:
    """Return the history of a log."""
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
    taxa = run_history.History.of(load_config("base"), log).taxa
    return History(taxa, [work[g] for g in span], [frozenset(alive[g]) for g in span])


def group_of(cell: str) -> str:
    """Return the convention group of a cell; families that are data are one group."""
    family = cell_family(cell)
    task = tasks.build(family) if family in tasks.names() else None
    return task.group if isinstance(task, SyntheticTask) else "written"


def by_group(earned: Mapping[OrganelleId, Counter[str]]) -> dict[OrganelleId, Counter[str]]:
    """Return the same by convention group instead of by cell."""
    groups: dict[OrganelleId, Counter[str]] = defaultdict(Counter)
    for organelle_id, cells in earned.items():
        for cell, count in cells.items():
            groups[organelle_id][group_of(cell)] += count
    return groups


def specialists(
    history: History, stop: int, window: int, least: int = 10
) -> dict[OrganelleId, str]:
    """Return the group of every specialist of the ``window`` generations before ``stop``.

    A specialist was alive in the last of them, gave at least ``least`` verified answers, most of
    them in one convention group, and was right there more often than not.
    """
    start = max(stop - window, 0)
    asked: Counter[tuple[OrganelleId, str]] = Counter()
    for works in history.work[start:stop]:
        for work in works:
            asked[work.organelle_id, group_of(work.cell)] += work.asked
    trades = {}
    for organelle_id, groups in by_group(history.earned(start, stop)).items():
        (group, right) = groups.most_common(1)[0]
        total = groups.total()
        is_sure = (
            right > MAJORITY * total >= MAJORITY * least
            and right > MAJORITY * asked[organelle_id, group]
        )
        if is_sure and organelle_id in history.alive[stop - 1]:
            trades[organelle_id] = group
    return trades


@dataclass(frozen=True)
class TraitInheritance:
    """Share of children that earn most in the group in which their first parent does."""

    children: int
    same: float  # part of them
    chance: float  # the same if parents were drawn at random


def inheritance(history: History, least: int = 10) -> TraitInheritance:
    """Return how trades run in families, from whole lives with so many verified answers."""
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
    """Return the number of different trades: 1 if all do the same, k if k groups share nothing.

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


@dataclass(frozen=True)
class Course:
    """Uses of the living in each generation, and ancestors."""

    uses: Sequence[Mapping[OrganelleId, int]]
    ancestors: Mapping[OrganelleId, Sequence[OrganelleId]]

    def counters(self) -> list[dict[OrganelleId, float]]:
        """Return the counters of the living, at the end of each generation.

        A newcomer begins with the mean of its ancestors' counters as they stand.
        """
        standing: dict[OrganelleId, float] = {}
        course = []
        for uses in self.uses:
            for organelle_id in uses.keys() - standing.keys():
                inherited = [
                    standing[ancestor]
                    for ancestor in self.ancestors.get(organelle_id, ())
                    if ancestor in standing
                ]
                standing[organelle_id] = sum(inherited) / len(inherited) if inherited else 0.0
            for organelle_id, use in uses.items():
                standing[organelle_id] += use
            course.append({organelle_id: standing[organelle_id] for organelle_id in uses})
        return course

    def mean_activity(self) -> np.ndarray:
        """Return the mean counter of the living, ``(generations,)``; NaN where nobody lived."""
        return np.array([np.mean(list(c.values())) if c else np.nan for c in self.counters()])


def course_of(history: History) -> Course:
    """Return the course of a run."""
    uses = []
    for works, alive in zip(history.work, history.alive, strict=True):
        counts = dict.fromkeys(sorted(alive), 0)
        for work in works:
            if work.organelle_id in counts:
                counts[work.organelle_id] += work.right
        uses.append(counts)
    return Course(
        uses, {organelle_id: taxon.ancestors for organelle_id, taxon in history.taxa.items()}
    )


def shadow(course: Course, generator: np.random.Generator) -> Course:
    """Draw the same births, deaths and uses without selection.

    In each generation as many leave as did, whoever they are; as many come, with as many ancestors,
    drawn from the generation before; and the same uses are dealt out among all.
    """
    uses: list[dict[OrganelleId, int]] = []
    ancestors: dict[OrganelleId, Sequence[OrganelleId]] = {}
    before: Mapping[OrganelleId, int] = {}
    living: list[OrganelleId] = []
    for counts in course.uses:
        newcomers = [organelle_id for organelle_id in counts if organelle_id not in before]
        survivors = generator.permutation(len(living))[: len(counts) - len(newcomers)]
        for organelle_id in newcomers:
            parents = generator.permutation(len(living))[
                : len(course.ancestors.get(organelle_id, ()))
            ]
            ancestors[organelle_id] = [living[index] for index in parents]
        living = [living[index] for index in sorted(survivors)] + newcomers
        dealt = generator.permutation(np.array(list(counts.values()), dtype=int))
        uses.append(
            {organelle_id: int(use) for organelle_id, use in zip(living, dealt, strict=True)}
        )
        before = counts
    return Course(uses, ancestors)


@dataclass(frozen=True)
class Activity:
    """A run's mean activity beside that of its shadows, ``(generations,)`` each, in verified
    answers."""

    mean: np.ndarray
    shadow: np.ndarray  # mean over shadows
    low: np.ndarray  # 2.5th percentile over shadows
    high: np.ndarray  # 97.5th


def activity(course: Course, generator: np.random.Generator, shadows: int = 40) -> Activity:
    """Return the activity of a course, and of so many shadows of it."""
    replays = np.array([shadow(course, generator).mean_activity() for _ in range(shadows)])
    low, high = np.quantile(replays, [0.025, 0.975], axis=0)
    return Activity(course.mean_activity(), replays.mean(axis=0), low, high)


@dataclass(frozen=True)
class Potential:
    """One snapshot: of those who lived at ``generation`` and whose lines persisted."""

    generation: int
    change: int  # kinds that were not there a snapshot before
    novelty: int  # kinds that were never there before
    diversity: float  # Shannon entropy of kinds, in nats
    kinds: int
    lines: int  # organelles that persisted, or whose descendants did, and that earned something


def potentials(history: History, interval: int) -> list[Potential]:
    """Take a snapshot every ``interval`` generations whose future is known for as long.

    Raises:
        ValueError: the interval is no positive number.
    """
    if interval < 1:
        raise ValueError(f"expected an interval of 1 or more generations, got {interval}")
    snapshots: list[Potential] = []
    ever: set[frozenset[str]] = set()
    last: set[frozenset[str]] = set()
    for now in range(interval, history.generations - interval + 1, interval):
        lines = _forebears(history.alive[now + interval - 1], history.taxa) & history.alive[now - 1]
        earned = history.earned(now - interval, now)
        kinds = Counter(
            kind
            for organelle_id in sorted(lines)
            if (kind := _kind(earned.get(organelle_id, Counter())))
        )
        current = set(kinds)
        shares = [count / kinds.total() for count in kinds.values()]
        diversity = sum(-share * math.log(share) for share in shares)
        change = len(current - last)
        novelty = len(current - ever)
        snapshots.append(Potential(now, change, novelty, diversity, len(current), kinds.total()))
        ever = ever | current
        last = current
    return snapshots


def _kind(cells: Counter[str]) -> frozenset[str]:
    return frozenset(
        cell for cell, count in cells.items() if count and count >= PART * cells.total()
    )


def _forebears(
    living: frozenset[OrganelleId], taxa: Mapping[OrganelleId, Taxon]
) -> set[OrganelleId]:
    """Return the living and everyone whom they descend from."""
    forebears: set[OrganelleId] = set()
    waiting = list(living)
    while waiting:
        organelle_id = waiting.pop()
        if organelle_id not in forebears:
            forebears.add(organelle_id)
            waiting += taxa[organelle_id].ancestors
    return forebears
