"""A run in a few numbers, from its event log alone: who lived, and what the economy moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symbiont_ecology.events import Acted, Born, Event, GenerationEnded, Retired, Settled


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
    rollouts: int = 0
    """Of any purpose, founding included."""
    practice: int = 0
    """Rollouts whose verdict entered learning."""


def biography(events: Iterable[Event]) -> Biography:
    """Adds up the events of a run."""
    founders = births = deaths = earned = spent = rollouts = practice = 0
    last: GenerationEnded | None = None
    for event in events:
        match event:
            case Acted():
                rollouts += len(event.rewards)
                practice += len(event.rewards) * (event.purpose == "practice")
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
    return Biography(
        generations=last.generation + 1 if last else 0,
        founders=founders,
        births=births,
        deaths=deaths,
        alive=last.population if last else founders,
        earned=earned,
        spent=spent,
        held=last.energy_total if last else 0,
        train_flops=last.train_flops if last else 0,
        rollouts=rollouts,
        practice=practice,
    )
