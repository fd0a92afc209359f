"""A run in a few numbers, from its event log alone: who lived, and what the economy moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symbiont_ecology.base.events import Acted, Born, Event, GenerationEnded, Retired, Settled


@dataclass(frozen=True)
class RunSummary:
    """Counts, and energy in mATP. ``founders`` are all without living parents, the refounded
    included."""

    generations: int = 0
    founders: int = 0
    births: int = 0
    merges: int = 0
    """Births with two parents or more."""
    deaths: int = 0
    bankruptcies: int = 0
    """Deaths of debt."""
    alive: int = 0
    earned: int = 0
    spent: int = 0
    held: int = 0
    train_flops: int = 0
    rollouts: int = 0
    """Of any purpose, founding included."""
    practice: int = 0
    """Rollouts whose verdict entered learning."""


def run_summary(events: Iterable[Event]) -> RunSummary:
    """Adds up the events of a run."""
    founders = births = merges = deaths = bankruptcies = earned = spent = rollouts = practice = 0
    last: GenerationEnded | None = None
    for event in events:
        match event:
            case Acted():
                rollouts += len(event.verdicts)
                practice += len(event.verdicts) * (event.purpose == "practice")
            case Born(parents=()):
                founders += 1
            case Born():
                births += 1
                merges += len(event.parents) > 1
            case Retired():
                deaths += 1
                bankruptcies += event.cause == "bankrupt"
            case Settled():
                earned += event.revenue
                spent += event.spent
            case GenerationEnded():
                last = event
    return RunSummary(
        generations=last.generation + 1 if last else 0,
        founders=founders,
        births=births,
        merges=merges,
        deaths=deaths,
        bankruptcies=bankruptcies,
        alive=last.population if last else founders,
        earned=earned,
        spent=spent,
        held=last.energy_total if last else 0,
        train_flops=last.train_flops if last else 0,
        rollouts=rollouts,
        practice=practice,
    )


@dataclass(frozen=True)
class CurvePoint:
    """A generation in a few numbers: training FLOPs so far, success of its practice, energy in
    mATP."""

    train_flops: int
    accuracy: float
    revenue: int
    cost: int
    population: int


MOST_MOMENTS = 64
"""Of a training curve."""


def training_curve(events: Iterable[Event]) -> list[CurvePoint]:
    """The course of a run, generation by generation, thinned out to at most ``MOST_MOMENTS``.

    Energy is summed over the generations that a moment stands for, accuracy is their mean.
    """
    moments, revenue, cost = [], 0, 0
    for event in events:
        if isinstance(event, Settled):
            revenue, cost = revenue + event.revenue, cost + event.spent
        elif isinstance(event, GenerationEnded):
            moments.append(
                CurvePoint(
                    event.train_flops, event.accuracy or 0.0, revenue, cost, event.population
                )
            )
            revenue = cost = 0
    step = max(-(-len(moments) // MOST_MOMENTS), 1)
    return [_together(moments[start : start + step]) for start in range(0, len(moments), step)]


def _together(moments: list[CurvePoint]) -> CurvePoint:
    last = moments[-1]
    return CurvePoint(
        last.train_flops,
        sum(moment.accuracy for moment in moments) / len(moments),
        sum(moment.revenue for moment in moments),
        sum(moment.cost for moment in moments),
        last.population,
    )
