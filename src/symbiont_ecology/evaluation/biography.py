"""A run in a few numbers, from its event log alone: who lived, and what the economy moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symbiont_ecology.events import Born, Event, GenerationEnded, Retired, Settled


@dataclass(frozen=True)
class Biography:
    """Counts, and energy in mATP. ``founders`` are all without living parents, the refounded included."""

    generations: int = 0
    founders: int = 0
    births: int = 0
    deaths: int = 0
    alive: int = 0
    earned: int = 0
    spent: int = 0
    held: int = 0
    train_flops: int = 0
    rows: int = 0
    """Rollouts of any purpose."""


def biography(events: Iterable[Event]) -> Biography:
    """Adds up the events of a run."""
    founders = births = deaths = earned = spent = 0
    last: GenerationEnded | None = None
    rows = 0
    for event in events:
        match event:
            case Born(parents=()):
                founders += 1
            case Born():
                births += 1
            case Retired():
                deaths += 1
            case Settled():
                earned += event.revenue
                spent += event.cost + event.rent
            case GenerationEnded():
                last = event
                rows += event.rows
    if last is None:
        return Biography(founders=founders)
    return Biography(
        last.generation + 1, founders, births, deaths, last.population, earned, spent, last.energy_total,
        last.train_flops, rows,
    )  # fmt: skip
