"""A run in a few numbers, from its event log alone: who lived, and what the economy moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symbiont_ecology.base.events import Acted, Born, Event, GenerationEnded, Retired, Settled

MAX_MOMENTS = 64
"""Moments of a training curve."""


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
    """Return the counts of a run."""
    kept = list(events)
    acted = [event for event in kept if isinstance(event, Acted)]
    born = [event for event in kept if isinstance(event, Born)]
    retired = [event for event in kept if isinstance(event, Retired)]
    settled = [event for event in kept if isinstance(event, Settled)]
    ended = [event for event in kept if isinstance(event, GenerationEnded)]
    founders = sum(not event.parents for event in born)
    last = ended[-1] if ended else None
    return RunSummary(
        generations=last.generation + 1 if last else 0,
        founders=founders,
        births=len(born) - founders,
        merges=sum(len(event.parents) > 1 for event in born),
        deaths=len(retired),
        bankruptcies=sum(event.cause == "bankrupt" for event in retired),
        alive=last.population if last else founders,
        earned=sum(event.revenue for event in settled),
        spent=sum(event.spent for event in settled),
        held=last.energy_total if last else 0,
        train_flops=last.train_flops if last else 0,
        rollouts=sum(len(event.verdicts) for event in acted),
        practice=sum(len(event.verdicts) for event in acted if event.purpose == "practice"),
    )


def training_curve(events: Iterable[Event]) -> list[tuple[int, float, int, int, int]]:
    """Return the course of a run: training FLOPs so far, success of practice, revenue and cost in
    mATP, and population, of at most ``MAX_MOMENTS`` moments.

    Energy is summed over the generations that a moment stands for, accuracy is their mean.
    """
    moments, revenue, cost = list[tuple[int, float, int, int, int]](), 0, 0
    for event in events:
        if isinstance(event, Settled):
            revenue, cost = revenue + event.revenue, cost + event.spent
        elif isinstance(event, GenerationEnded):
            accuracy = event.accuracy or 0.0
            moments.append((event.train_flops, accuracy, revenue, cost, event.population))
            revenue = cost = 0
    step = max(-(-len(moments) // MAX_MOMENTS), 1)
    parts = [
        list(zip(*moments[at : at + step], strict=True)) for at in range(0, len(moments), step)
    ]
    return [
        (flops[-1], sum(shares) / len(shares), sum(earned), sum(spent), alive[-1])
        for flops, shares, earned, spent, alive in parts
    ]
