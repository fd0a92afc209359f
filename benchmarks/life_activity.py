"""Evolutionary activity: how much use builds up along lines of descent, beside what drift alone
builds up.

Use is a verified answer. Every organelle has a counter that begins where its parent's stands (a
fresh founder's at 0) and grows with its own use (usage statistics, Bedau & Packard 1992). The
neutral shadow has the same births and deaths in the same generations and the same uses to give
away, but parents, victims and users are drawn at random (Bedau, Snyder & Packard 1998). Its
counters grow at the mean use. Where counters grow faster, those who are used live longer or leave
more offspring: that is selection.

The shadow is a replay of the log: it needs no model, and its births and deaths are the same
exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from life_history import History
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True)
class Course:
    """Who lived in each generation and how much it was used; who came of whom."""

    uses: Sequence[Mapping[OrganelleId, int]]
    ancestors: Mapping[OrganelleId, Sequence[OrganelleId]]

    def counters(self) -> list[dict[OrganelleId, float]]:
        """The counters of everyone who lived, at the end of each generation.

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
        """Mean counter of the living, in verified answers, ``(generations,)``; NaN where nobody
        lived."""
        return np.array([np.mean(list(c.values())) if c else np.nan for c in self.counters()])


def course_of(history: History) -> Course:
    """The course of a run."""
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
    """The same births, deaths and uses without selection.

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
    """The activity of a course, and of so many shadows of it."""
    replays = np.array([shadow(course, generator).mean_activity() for _ in range(shadows)])
    low, high = np.quantile(replays, [0.025, 0.975], axis=0)
    return Activity(course.mean_activity(), replays.mean(axis=0), low, high)
