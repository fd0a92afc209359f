"""The gate: a merged child lives if it is proven to be better than each of its parents.

Child and parents answer the same fresh questions, round by round, and after each round the gate
says admit, reject or go on. Looking often is allowed: the tests are betting games whose wealth is
evidence at any moment (safe testing, Grünwald et al. 2019, arXiv:1906.07801; Waudby-Smith & Ramdas
2023, arXiv:2010.09686).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PositiveInt

from symbiont_ecology.base.events import Event
from symbiont_ecology.base.statistics import evidence

GateDecision: TypeAlias = Literal["admit", "reject", "go on"]
OpenShare: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class PairedCounts:
    """Questions that a child and a parent both answered: the child alone was right, both or neither
    was, or the parent alone."""

    wins: int = 0
    ties: int = 0
    losses: int = 0

    @classmethod
    def of(cls, child: Sequence[float], parent: Sequence[float]) -> PairedCounts:
        """Return the counts of verdicts on the same questions, in one order."""
        gaps = [own - rival for own, rival in zip(child, parent, strict=True)]
        wins = sum(gap > 0 for gap in gaps)
        losses = sum(gap < 0 for gap in gaps)
        return cls(wins, len(gaps) - wins - losses, losses)


@dataclass(frozen=True)
class Trial:
    """The end of a trial. ``counts`` are those against the parent that did best; ``events`` record
    who answered what."""

    decision: GateDecision
    counts: PairedCounts = PairedCounts()
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class Gate:
    """Sequential tests of paired answers, each between what must be ruled out and what is hoped
    for.

    A child is to be better than each parent: a mean difference of 0 is ruled out, ``gain`` is hoped
    for. It is admitted when that is proven in every comparison, so a child that is no better than
    one parent is admitted with chance ``level`` at most, however many there are
    (intersection-union, Berger 1982). It is rejected as soon as some comparison proves that less is
    there than is hoped for, which ends most trials early, or has had its questions.
    """

    level: OpenShare = 0.05  # chance that a child without merit is ever admitted
    gain: OpenShare = 0.15  # share of questions by which a child is hoped to be better
    most: PositiveInt = 384  # paired questions of a comparison after which it is undecided for good

    def rule(self, comparisons: Collection[PairedCounts]) -> GateDecision:
        """Judge a child by all its comparisons. Every look should spread its questions over cells
        in the same way: the claim is about their mean."""
        decisions = set(map(self.compare, comparisons))
        if "reject" in decisions:
            return "reject"
        return "admit" if decisions == {"admit"} else "go on"

    def compare(self, counts: PairedCounts) -> GateDecision:
        """Judge the comparison with one parent."""
        wins, ties, losses = counts.wins, counts.ties, counts.losses
        if evidence(wins, ties, losses) >= 1 / self.level:
            return "admit"
        falls_short = evidence(losses, ties, wins, -self.gain) >= 1 / self.level
        return "reject" if falls_short or wins + ties + losses >= self.most else "go on"
