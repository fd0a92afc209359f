"""An evolution of trainings, life after life: who was examined, what was earned, who stayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from symbiont_ecology.events import Acted, Born, Event, Retired, Scored
from symbiont_ecology.types import OrganelleId

STEADY, LIVES = 0.01, 5
"""An evolution has converged if the best fitness rose by less than that, relatively, over so many
lives."""


@dataclass(frozen=True)
class Variant:
    """A training with its genes: where they came from, and what came of it."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    genes: Mapping[str, float]
    fitness: float
    accuracy: float


@dataclass(frozen=True)
class Life:
    """The end of a life: everybody alive, the best first, and who stayed."""

    number: int
    ranking: tuple[Variant, ...]
    survivors: frozenset[OrganelleId]


def lives_of(events: Iterable[Event]) -> list[Life]:
    """The lives that have ended, from the events of a run with ``hyper``."""
    born: dict[OrganelleId, Born] = {}
    accuracies: dict[OrganelleId, list[float]] = {}
    alive: dict[OrganelleId, Variant] = {}
    lives = list[Life]()
    ended = -1
    for event in events:
        match event:
            case Born():
                born[event.id] = event
            case Acted(purpose="practice") if event.verdicts:
                accuracies.setdefault(event.id, []).extend(event.verdicts)
            case Scored():
                if event.generation != ended:
                    ended = event.generation
                    lives.append(Life(len(lives) + 1, (), frozenset()))
                one = born[event.id]
                alive[event.id] = Variant(
                    one.id,
                    one.operator,
                    one.parents,
                    one.traits,
                    event.score,
                    fmean(accuracies[event.id]),
                )
                lives[-1] = _life(lives[-1].number, alive, set(alive))
            case Retired() if event.id in alive:
                was = lives[-1]
                lives[-1] = replace(was, survivors=was.survivors - {event.id})
                del alive[event.id]
    return lives


def has_converged(lives: list[Life]) -> bool:
    """Whether the best fitness has hardly risen for some lives."""
    if len(lives) <= LIVES:
        return False
    before, now = (lives[place].ranking[0].fitness for place in (-1 - LIVES, -1))
    return now - before < STEADY * before


def _life(number: int, alive: Mapping[OrganelleId, Variant], survivors: set[OrganelleId]) -> Life:
    ranking = tuple(sorted(alive.values(), key=lambda one: -one.fitness))
    return Life(number, ranking, frozenset(survivors))
