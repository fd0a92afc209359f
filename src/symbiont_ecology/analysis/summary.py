"""What a comparison comes to, as values: ``summary.json`` of a paper pack is a dump of it.

Budgets are named by their text (``0.25``), as in the file. A view is a shift, or the
in-distribution cells of a kind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeVar

from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.statistics import Interval

Number = TypeVar("Number")
Views = dict[str, dict[str, Number]]
"""By view and arm."""
PROTOCOL_KEYS = {"name", "question", "unit_flops", "main", "level"}
"""What the file says of the protocol."""
COUNTS = ("rollouts", "births", "merges", "deaths", "alive")
"""Means of what runs counted."""


@dataclass(frozen=True)
class Accuracy(Interval):
    """The share that is right, its interquartile mean over seeds, and the seeds."""

    iqm: float
    seeds: list[float]


@dataclass(frozen=True)
class Difference(Interval):
    """One arm minus another: a p-value over seeds, and the difference that so many would find."""

    p: float
    detectable: float | None
    seeds: list[float]


@dataclass(frozen=True)
class AdjustedDifference(Difference):
    """The same as one of a family of tests."""

    p_adjusted: float
    is_claimed: bool


@dataclass(frozen=True)
class Source:
    """The host, and the versions of the packages."""

    fingerprint: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Spending:
    """What the runs of an arm did and spent at a budget: means, but for the worst ``off_budget``.

    Energy is in mATP, ``roi`` is revenue over cost. ``break_even_solved`` is the number of right
    answers from which training pays off against the bare host; None: never.
    """

    rollouts: float
    births: float
    merges: float
    deaths: float
    alive: float
    net_per_episode: float
    roi: float
    coverage: float
    train_flops: float
    executed_flops: float
    off_budget: float
    select_flops: float
    flops_per_solved: float
    break_even_solved: float | None
    organelles_asked: float
    option: int


@dataclass(frozen=True)
class Peer:
    """SFT against the ceiling, and over the budgets."""

    ceiling: float
    sft: dict[str, float]
    largest: str
    sft_minus_ceiling: float
    share_of_best: dict[str, float]


@dataclass(frozen=True)
class Frontier:
    """Skill and retention of an arm: by budget a point per seed; hypervolumes by seed."""

    points: dict[str, list[tuple[float, float]]]
    hypervolume: list[float]
    mean: float


@dataclass(frozen=True)
class RetentionSummary:
    """The frontiers, and the main arm's hypervolume minus the others'."""

    arms: dict[str, Frontier]
    differences: dict[str, AdjustedDifference]


@dataclass(frozen=True)
class RoutedShift:
    """The routings of an arm on one shift: how often they are right, and the arm's own minus the
    others; the share that its own leaves to the host; FLOPs per question."""

    accuracy: dict[str, Interval]
    minus: dict[str, Difference]
    abstained: float
    flops: dict[str, float]


@dataclass(frozen=True)
class LegMean:
    """Accuracy over seeds at one leg of a flip."""

    phase: str
    extra: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class FlipMeans:
    """Means over seeds."""

    area: float
    at_zero: float


@dataclass(frozen=True)
class FlipCurves:
    """An arm through the flip: curves by side, and by seed their area and height at zero extra."""

    curves: dict[str, list[LegMean]]
    area: list[float]
    at_zero: list[float]
    seeds: list[int]
    mean: FlipMeans


@dataclass(frozen=True)
class FlipSummary:
    """All arms through the flip, and the main arm minus the others by ``area`` and ``at_zero``."""

    arms: dict[str, FlipCurves]
    differences: dict[str, dict[str, AdjustedDifference]]


@dataclass(frozen=True)
class Summary:
    """All numbers of a comparison."""

    protocol: Protocol
    host: Source
    sources: list[str]
    cells: dict[str, list[str]]
    """In-distribution cells by kind."""
    seeds: dict[str, int]
    """How many, by arm."""
    arms: dict[str, dict[str, Spending]]
    """By arm and budget."""
    accuracy: dict[str, Views[Accuracy]]
    """By budget, view and arm."""
    differences: dict[str, Views[AdjustedDifference]]
    """The main arm minus the others."""
    second: dict[str, Views[AdjustedDifference]]
    """The second arm minus those that see gold answers, too."""
    peer: Peer | None
    retention: RetentionSummary
    routing: dict[str, dict[str, RoutedShift]]
    """By arm and shift."""
    flip: FlipSummary
    unpaired: list[str]
    """Arms that have no seed in common with the main one; the file says it where there are any."""

    @property
    def largest(self) -> str:
        """The largest budget."""
        return list(self.accuracy)[-1]

    def dump(self) -> dict[str, object]:
        """Plain values for JSON."""
        protocol = self.protocol.model_dump(mode="json", include=PROTOCOL_KEYS)
        peer = asdict(self.peer) if self.peer else {}
        values = asdict(self) | {"protocol": protocol, "peer": peer}
        return {key: value for key, value in values.items() if value or key != "unpaired"}
