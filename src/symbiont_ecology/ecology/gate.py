"""Challengers, and the gate: who takes over is proven better, and keeps what its parents can do.

A challenger is on probation: it answers questions beside its parents, and learns nothing. A child
and a parent answer the same fresh questions, and at every look the gate says admit, reject
or go on. Looking often is allowed: the tests are betting games whose wealth is evidence at any
moment (safe testing, Grünwald et al. 2019, arXiv:1906.07801; Waudby-Smith & Ramdas 2023,
arXiv:2010.09686).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PositiveInt

from symbiont_ecology.base.statistics import evidence
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.organelle import Genome

GateDecision: TypeAlias = Literal["admit", "reject", "go on"]
OpenShare: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class PairedCounts:
    """Questions that a child and a parent both answered: the child alone was right, both or neither
    was, or the parent alone."""

    wins: int = 0
    ties: int = 0
    losses: int = 0

    @property
    def pairs(self) -> int:
        """Number of questions."""
        return self.wins + self.ties + self.losses

    def __add__(self, other: PairedCounts) -> PairedCounts:
        return PairedCounts(
            self.wins + other.wins, self.ties + other.ties, self.losses + other.losses
        )


@dataclass(frozen=True)
class Challenger:
    """A child that has to prove itself against its parents, judged by the mechanism ``by``.

    It owns its dowry from the start, since probation leaves its parents poor. ``cells`` says where
    each parent is at home. ``counts[parent][home]`` are the paired answers against that parent in
    the cells where the parent ``home`` is at home.
    """

    id: OrganelleId
    genome: Genome
    operator: str
    by: str
    cells: Mapping[OrganelleId, tuple[str, ...]]
    counts: Mapping[OrganelleId, Mapping[OrganelleId, PairedCounts]] = field(default_factory=dict)

    @property
    def against_the_better(self) -> PairedCounts:
        """Counts of all questions, against the parent that did best on them."""
        sums = [sum(by_home.values(), PairedCounts()) for by_home in self.counts.values()]
        return min(sums, key=lambda pairs: pairs.wins - pairs.losses, default=PairedCounts())

    @property
    def parents(self) -> tuple[OrganelleId, ...]:
        """The parents, in the order in which they were proposed."""
        return tuple(self.cells)


@dataclass(frozen=True)
class Ruling:
    """The fate of a challenger, and why it is rejected, in words for people."""

    verdict: GateDecision
    reason: str = ""


@dataclass(frozen=True)
class Gate:
    """Sequential tests of paired answers, each between what must be ruled out and what is hoped
    for.

    A child is to be *better* than a rival: 0 is ruled out, ``gain`` is hoped for. And what a parent
    is good at is to be *kept*: −``loss`` is ruled out, 0 is hoped for. A child is admitted when the
    first is proven in every comparison, so one that fails in any of them is admitted with chance
    ``level`` at most, however many there are (intersection-union, Berger 1982). It is rejected as
    soon as some comparison proves that less is there than is hoped for, which ends most probations
    early, or has had its questions.
    """

    level: OpenShare = 0.05  # chance that a child without merit is ever admitted
    gain: OpenShare = 0.15  # share of questions by which a child is hoped to be better
    loss: OpenShare = 0.15  # share of questions that a child must not lose at home
    most: PositiveInt = 384  # paired questions of a comparison after which it is undecided for good

    def rule(self, better: Collection[PairedCounts], kept: Collection[PairedCounts] = ()) -> Ruling:
        """Judge a child by all its comparisons, with the first one that rejects it as the reason.

        One that is to be better at nothing is rejected. Within a tally, every look should spread
        its questions over cells in the same way: the claim is about their mean.
        """
        tests = [(self.better(one), one, "it is not better by what is hoped for") for one in better]
        tests += [(self.kept(one), one, "it loses what a parent is good at") for one in kept]
        for verdict, tally, words in tests:
            if verdict == "reject":
                is_over = tally.pairs >= self.most
                return Ruling("reject", "its questions ran out undecided" if is_over else words)
        if not better:
            return Ruling("reject", "there is nothing to be better at")
        return Ruling("go on" if "go on" in [verdict for verdict, *_ in tests] else "admit")

    def better(self, tally: PairedCounts) -> GateDecision:
        """Judge one comparison in which the child is to win."""
        return self._between(0.0, self.gain, tally)

    def kept(self, tally: PairedCounts) -> GateDecision:
        """Judge one comparison in which it is enough that the child does not lose ``loss``."""
        return self._between(-self.loss, 0.0, tally)

    def _between(self, ruled_out: float, hoped: float, tally: PairedCounts) -> GateDecision:
        """Admit if the mean difference is proven to be above one margin, reject if below the
        other."""
        if evidence(tally.wins, tally.ties, tally.losses, ruled_out) >= 1 / self.level:
            return "admit"
        falls_short = evidence(tally.losses, tally.ties, tally.wins, -hoped) >= 1 / self.level
        return "reject" if falls_short or tally.pairs >= self.most else "go on"
