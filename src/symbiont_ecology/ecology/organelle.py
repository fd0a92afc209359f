"""An organelle: one adapter with a genome, an optimizer state, a history and success posteriors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.habitats import MOST_ANSWERS, RememberedAnswer
from symbiont_ecology.ecology.ranges import PromptRange

HOST: OrganelleId = "host"
"""The id under which the bare host appears in assignments and events; it owns no account and never
learns."""

RULE = "rule"
"""The trait in [0, 1) that says by which of several rules an organelle learns (learning_rule
``heritable``)."""

SCORE = "score"
"""The note that says how good its weights were found to be."""

DROPOUT = "dropout"
"""The trait that says which share of its inputs an organelle does not see while it learns."""


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
    def std(self) -> float:
        """Posterior standard deviation of the success rate."""
        mean = self.mean
        return math.sqrt(mean * (1 - mean) / (self.successes + self.failures + 3))

    @property
    def bound(self) -> float:
        """A success rate that is probably exceeded: one standard deviation below the mean, > 0."""
        return self.mean - self.std

    def faded(self, fade: float, verdicts: Sequence[float]) -> SuccessPosterior:
        """After news: old counts count ``fade`` as much, the new verdicts are added."""
        wins = sum(verdicts)
        return SuccessPosterior(
            fade * self.successes + wins, fade * self.failures + len(verdicts) - wins
        )

    def discounted(self, share: float) -> SuccessPosterior:
        """The same rate, on part of the evidence."""
        return SuccessPosterior(share * self.successes, share * self.failures)


def pooled(posteriors: Iterable[SuccessPosterior]) -> SuccessPosterior:
    """What several posteriors say of one success rate."""
    parts = list(posteriors)
    return SuccessPosterior(sum(p.successes for p in parts), sum(p.failures for p in parts))


@dataclass(frozen=True)
class Genome:
    """What is inherited: adapter weights by reference, and traits (``learning_rate`` is Adam's step
    size)."""

    weights: BlobRef
    rank: int
    traits: dict[str, float]


@dataclass(frozen=True)
class Organelle:
    """One living adapter. ``inborn`` are the weights that it was born with, ``overdrawn`` counts
    the generations in a row that it ended below zero. ``memories`` are answers that habitats had
    accepted before they changed. ``range`` is kept only for strategies that want it. ``notes`` are
    what strategies keep of it, by name."""

    id: OrganelleId
    genome: Genome
    optimizer_state: BlobRef
    parents: tuple[OrganelleId, ...]
    operator: str
    born: int
    inborn: BlobRef
    overdrawn: int = 0
    memories: tuple[RememberedAnswer, ...] = ()
    range: PromptRange = field(default_factory=PromptRange)
    notes: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The score that a strategy noted of these weights: it tells equals apart after a run."""
        score = self.notes.get(SCORE)
        return score if isinstance(score, float) else None

    def remembering(self, answers: Sequence[RememberedAnswer]) -> Organelle:
        """With some more memories; the newest of each family are kept."""
        memories, counts = list[RememberedAnswer](), Counter[str]()
        for answer in reversed((*self.memories, *answers)):
            counts[answer.family] += 1
            if counts[answer.family] <= MOST_ANSWERS:
                memories.append(answer)
        return replace(self, memories=tuple(reversed(memories)))
