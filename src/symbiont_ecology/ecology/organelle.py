"""An organelle: one adapter with a genome, a memory and a history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from symbiont_ecology.ecology.posterior import SuccessPosterior
from symbiont_ecology.types import BlobRef, OrganelleId

HOST: OrganelleId = "host"
"""The id under which the bare host appears in trials and events; it owns no account and never
learns."""

RULE = "rule"
"""The trait in [0, 1) that says by which of several rules an organelle learns (learning_rule
``heritable``)."""


@dataclass(frozen=True)
class Genome:
    """What is inherited: adapter weights by reference, and traits (``learning_rate`` is Adam's step
    size)."""

    weights: BlobRef
    rank: int
    traits: dict[str, float]


@dataclass(frozen=True)
class FormerSelf:
    """What an organelle was when most was believed of it, and what that was, by cell name."""

    weights: BlobRef
    rank: int
    optimizer_state: BlobRef
    posteriors: Mapping[str, SuccessPosterior]


def skill(posteriors: Mapping[str, SuccessPosterior]) -> float:
    """Cells' worth of right answers that are believed of an organelle: the sum of its success
    rates."""
    return sum(posterior.mean for posterior in posteriors.values())


@dataclass(frozen=True)
class Organelle:
    """One living adapter. ``inborn`` are the weights that it was born with, ``overdrawn`` counts
    the generations in a row that it ended below zero, ``former`` is a self that it could come back
    to."""

    id: OrganelleId
    genome: Genome
    optimizer_state: BlobRef
    parents: tuple[OrganelleId, ...]
    operator: str
    born: int
    inborn: BlobRef
    overdrawn: int = 0
    former: FormerSelf | None = None

    def noted(self, posteriors: Mapping[str, SuccessPosterior]) -> Organelle:
        """The same, with what it is now as its former self unless more was once believed of it."""
        if self.former is not None and skill(posteriors) < skill(self.former.posteriors):
            return self
        return replace(
            self,
            former=FormerSelf(
                self.genome.weights, self.genome.rank, self.optimizer_state, dict(posteriors)
            ),
        )
