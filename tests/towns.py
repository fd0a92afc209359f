"""A small town on the toy host, and what came of its questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from logs import ECOLOGY, RICH
from runs import start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Event
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.users import SyntheticUsers
from toy import ToyHost, toy_config

FAMILIES = ("math.add", "string.sort", "logic.bool", "string.reverse")
GENERATIONS = 30


def config(
    strategy: Any = None,
    seed: int = 0,
    length: int = GENERATIONS,
    families: Sequence[str] = FAMILIES,
    **world: Any,
) -> RunConfig:
    """A small town on the toy host."""
    rule = {"kind": "expert_iteration", "skip": 0.0, "replay": 1.0}
    parts = {"strategy": strategy or ECOLOGY, "learning_rule": rule}
    plan = toy_config(seed, length, families, RICH, checkpoint_every=4, **parts)
    users = UsersConfig(**{"count": 12, "kinds": 3, "questions": 12, **world})
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"users": users})})


def lived(folder: Path, plan: RunConfig) -> tuple[EcologyState, list[Event]]:
    state = start(plan, folder, host=ToyHost()).state
    return state, list(read_events(folder / "events.jsonl"))


def world_of(plan: RunConfig) -> SyntheticUsers:
    world = mixture(plan).users
    assert isinstance(world, SyntheticUsers)
    return world


def asked(events: list[Event]) -> Mapping[int, Counter[tuple[str, str]]]:
    """User and question by generation."""
    questions: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for event in events:
        if isinstance(event, Acted) and event.purpose == "practice":
            questions[event.generation].update((event.user, item) for item in event.items)
    return questions


def acceptance(events: list[Event], since: int = 0) -> float:
    acted = [event for event in events if isinstance(event, Acted) and event.purpose == "practice"]
    verdicts = [one for event in acted if event.generation >= since for one in event.verdicts]
    return sum(verdicts) / len(verdicts)
