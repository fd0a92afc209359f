"""Success: what is known of an organelle in a cell, where success fell, and the best weights.

Three records are kept of verdicts. A ``SuccessPosterior`` says how often an organelle is right in a
cell. A ``DriftDetector`` says whether success fell there: nobody is told that the world changed,
but it then falls in many cells at once. And the ``Archive`` keeps the best known weights of every
cell (quality diversity, MAP-Elites; Mouret & Clune 2015), so an ability outlives the organelle that
had it: it is the gene pool that refounded organelles come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.organelle import Genome

SCORE_HALF_LIFE = 50
"""Generations after which an elite's score counts half as much, if its holder is no longer there to
confirm it."""
RECENT, MIN_VERDICTS, TIMES = 4, 8, 3
"""The last generations with news, at least so many and with so many verdicts, are compared with
``TIMES`` as many before them."""
MIN_DOUBT = 0.05
"""Success rates are taken to be this far from 0 and 1: no verdict is beyond doubt."""


@dataclass(frozen=True)
class SuccessPosterior:
    """The success rate of an organelle in a cell: discounted counts of its successes and failures.

    Old counts fade, since organelles learn.
    """

    successes: float = 0.0
    failures: float = 0.0

    @property
    def mean(self) -> float:
        """Posterior mean success rate under a uniform prior."""
        return (self.successes + 1) / (self.successes + self.failures + 2)

    @property
    def bound(self) -> float:
        """A success rate that is probably exceeded: one standard deviation below the mean, > 0."""
        variance = self.mean * (1 - self.mean) / (self.successes + self.failures + 3)
        return self.mean - math.sqrt(variance)

    def faded(self, fade: float, verdicts: Sequence[float]) -> SuccessPosterior:
        """Return it after news: old counts count ``fade`` as much, the new verdicts are added."""
        wins = sum(verdicts)
        return SuccessPosterior(
            fade * self.successes + wins, fade * self.failures + len(verdicts) - wins
        )

    def discounted(self, share: float) -> SuccessPosterior:
        """Return the same rate, on part of the evidence."""
        return SuccessPosterior(share * self.successes, share * self.failures)


def pooled(posteriors: Iterable[SuccessPosterior]) -> SuccessPosterior:
    """Return what several posteriors say of one success rate."""
    parts = list(posteriors)
    return SuccessPosterior(sum(p.successes for p in parts), sum(p.failures for p in parts))


@dataclass(frozen=True)
class DriftDetector:
    """Counts of right answers and of all, in each of the last generations that asked in a cell."""

    seen: tuple[tuple[float, int], ...] = ()

    def after(self, verdicts: Sequence[float]) -> DriftDetector:
        """Return it with one more generation; only those that can count are kept."""
        most = (1 + TIMES) * max(RECENT, MIN_VERDICTS)
        return DriftDetector((*self.seen, (sum(verdicts), len(verdicts)))[-most:])

    @property
    def lately(self) -> float:
        """Success rate of late, as the mean under a uniform prior: 0.5 where nothing is known."""
        right, asked = self._compared[0]
        return (right + 1) / (asked + 2)

    @property
    def fall(self) -> float:
        """Fall of success of late, as a share of verdicts; negative where it rose, 0 while
        unknown."""
        (right, asked), (right_before, asked_before) = self._compared
        return right_before / asked_before - right / asked if asked_before else 0.0

    @cached_property
    def z_score(self) -> float:
        """The fall in standard errors of such a difference."""
        (_, asked), (right_before, asked_before) = self._compared
        if not asked_before:
            return 0.0
        rate = min(max(right_before / asked_before, MIN_DOUBT), 1 - MIN_DOUBT)
        return self.fall / math.sqrt(rate * (1 - rate) * (1 / asked + 1 / asked_before))

    @cached_property
    def _compared(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """Counts of right answers and of all, lately and before; none before while little is
        known."""
        verdicts = accumulate(count for _, count in reversed(self.seen))
        enough = next(
            (n for n, total in enumerate(verdicts, 1) if total >= MIN_VERDICTS), MIN_VERDICTS
        )
        span = max(enough, RECENT)
        before = self.seen[-(1 + TIMES) * span : -span] if len(self.seen) > 2 * span else ()
        return _totals(self.seen[-span:]), _totals(before)


def drift_score(drift_detectors: Iterable[DriftDetector]) -> float:
    """Return how much further cells fell than chance explains, all together, in standard errors.

    A change of many cells shows within three generations, one of few cells later. A level of 8 is
    met by chance in no run; one of 5 in one of twenty (docs/log.md).
    """
    falls = [max(detector.z_score, 0.0) for detector in drift_detectors]
    # Of the positive part of N(0, 1).
    expected, variance = 1 / math.sqrt(2 * math.pi), 0.5 - 0.5 / math.pi
    return (sum(falls) - expected * len(falls)) / math.sqrt(variance * max(len(falls), 1))


def _totals(pairs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    rights, counts = zip(*pairs, strict=True) if pairs else ((), ())
    return sum(rights), sum(counts)


@dataclass(frozen=True)
class Elite:
    """The holder of a cell, its weights, and a success rate in [0, 1] that it probably exceeds
    there."""

    organelle_id: OrganelleId
    weights: BlobRef
    rank: int
    score: float
    generation: int


@dataclass
class Archive:
    """Elites by niche: a cell (``family/depth``), or a user."""

    elites: dict[str, Elite] = field(default_factory=dict)

    def add(self, name: str, elite: Elite) -> bool:
        """Put the elite in a niche if that is empty, held by its own earlier self, or held by a
        worse one.

        The score of an elite that no longer practises fades, since it may have been luck (winner's
        curse). Returns whether somebody else (or nobody) held the niche before.
        """
        holder = self.elites.get(name)
        if holder is not None and holder.organelle_id != elite.organelle_id:
            fade = 0.5 ** ((elite.generation - holder.generation) / SCORE_HALF_LIFE)
            if holder.score * fade >= elite.score:
                return False
        self.elites[name] = elite
        return holder is None or holder.organelle_id != elite.organelle_id

    def follow(self, organelle_id: OrganelleId, genome: Genome, generation: int) -> None:
        """Update the weights of a holder in all its cells: what it learned since belongs to it."""
        for name, elite in self.elites.items():
            if elite.organelle_id == organelle_id:
                self.elites[name] = replace(
                    elite, weights=genome.weights, rank=genome.rank, generation=generation
                )
