"""Parts that are fine but for some calls: at these they do what a test says."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from runs import start
from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.operators import Mutation
from symbiont_ecology.base import fence
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Event
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import Experience, LearningRule, RewardRule, WeightedTarget
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run.config import RunConfig
from toy import ToyHost, toy_config, toy_ecology

Act = Callable[[], object]
SINGLE = {"kind": "single", "questions": 4, "samples": 3, "learning_rate": 0.1}


class Chance:
    """Which calls go wrong, and how: every so many, or all with 1; never with 0."""

    calls: ClassVar[int] = 0
    every: ClassVar[int] = 0
    act: ClassVar[Act] = staticmethod(lambda: None)

    @classmethod
    def strikes(cls) -> bool:
        """Whether this call is one of them."""
        cls.calls += 1
        return cls.every > 0 and cls.calls % cls.every == 0


@dataclass(frozen=True)
class Moody(RewardRule):
    """The verdict, as a rule."""

    def __call__(self, rollout: Rollout) -> Any:
        """The verdict, or else."""
        return Chance.act() if Chance.strikes() else rollout.verdict


@dataclass(frozen=True)
class Absent(LearningRule):
    """Imitates what was right, as a rule."""

    def targets(self, experience: Experience) -> Any:
        """One target for every right answer, or else."""
        if Chance.strikes():
            said: Any = Chance.act()
            return said(experience) if callable(said) else said
        rollouts = (rollout for one in experience.outcomes for rollout in one.rollouts)
        return [WeightedTarget.of(one, 1.0) for one in rollouts if one.reward], experience.notes


@dataclass(frozen=True)
class Wild(Mutation):
    """The parent again, as a rule."""

    def mutated(self, parent: AdapterWeights, generator: np.random.Generator) -> Any:
        """The child, or else."""
        if Chance.strikes():
            said: Any = Chance.act()
            return said(parent) if callable(said) else said
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)


def goes_wrong(monkeypatch: pytest.MonkeyPatch, every: int, act: Act) -> None:
    """From now on every such call does this. Patience is short where something never returns, and
    only there: a busy machine is late as well."""
    monkeypatch.setattr(fence, "PART_SECONDS", 0.3 if act is never_returns else 30.0)
    monkeypatch.setattr(Chance, "every", every)
    monkeypatch.setattr(Chance, "act", staticmethod(act))


def raises() -> object:
    raise ValueError("no such\nluck")


def leaves() -> object:
    sys.exit(0)


def never_returns() -> object:
    while True:
        time.sleep(0.001)


FAULTS: dict[str, tuple[Act, str]] = {
    "raises": (raises, "raised ValueError: no such luck (faulty.py line "),
    "leaves": (leaves, "raised SystemExit: 0 (faulty.py line "),
    "never returns": (never_returns, "took longer than 0.3 s"),
    "None": (lambda: None, "returned N"),
    "text": (lambda: "much", "returned "),
}


def of(kind: type[Event], folder: Path) -> list[Any]:
    """The events of a kind in the log of a run."""
    return [event for event in read_events(folder / "events.jsonl") if isinstance(event, kind)]


def learns(generations: int = 8, **changes: Any) -> RunConfig:
    """Somebody learns alone."""
    return toy_config(generations=generations, **{"strategy": SINGLE, **changes})


def breeds(generations: int = 14) -> RunConfig:
    """A population whose children are made by the wild operator."""
    mechanisms = {"breeding": {"at": 20_000, "mutation": "wild"}, "refounding": {"least": 4}}
    return toy_config(generations=generations, strategy=toy_ecology(mechanisms=mechanisms))


def live_until(generation: int, plan: RunConfig, folder: Path) -> None:
    """A run that was interrupted in that generation."""
    lived = iter(range(1, generation + 1))
    start(plan, folder, host=ToyHost(), should_stop=lambda: next(lived) == generation)
    assert load_state(folder).generation == generation
