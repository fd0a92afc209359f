"""Parts of a plug-in that do whatever they like, whenever they like, in a run."""

from __future__ import annotations

import copy
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mutations import HOSTILE, Count
from runs import start
from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.adapters.operators import Mutation, operators
from symbiont_ecology.base import fence
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import (
    Experience,
    LearningRule,
    RewardRule,
    WeightedTarget,
    learning_rules,
    reward_rules,
)
from symbiont_ecology.tasks import Task, tasks, verification
from toy import ToyHost, toy_config, toy_ecology


class UnsayableError(Exception):
    """Cannot even be said."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _hangs() -> object:
    while True:
        time.sleep(0.001)


def _matches() -> object:
    return re.fullmatch(r"(a|aa)+", 60 * "a" + "b")


def _recurses() -> object:
    return _recurses()


def _raises(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


class Unsayable:
    """A value that raises when it is looked at."""

    def __repr__(self) -> str:
        raise UnsayableError

    def __bool__(self) -> bool:
        raise UnsayableError


DEEDS: tuple[Callable[[], object], ...] = (
    *(partial(copy.copy, value) for value in HOSTILE),
    *map(
        _raises, (ValueError("a\nb"), KeyError(), MemoryError(), GeneratorExit(), UnsayableError())
    ),
    *map(_raises, (RecursionError(), StopIteration(), SystemExit("x"), BrokenPipeError())),
    *(sys.exit, _hangs, _matches, _recurses, Unsayable, lambda: np.ones(2), lambda: np.nan),
    lambda: np.True_,
    lambda: 1j,
)


class Whim:
    """What a part does in this case, and how often."""

    generator: ClassVar[np.random.Generator] = np.random.default_rng(0)
    deed: ClassVar[Callable[[], object]] = staticmethod(lambda: None)
    share: ClassVar[float] = 0.0

    @classmethod
    def takes(cls) -> bool:
        """Whether it does it now."""
        return bool(cls.generator.random() < cls.share)

    @classmethod
    def one_of(cls, *ways: Callable[[], object]) -> Any:
        """What one of them comes to."""
        return ways[int(cls.generator.integers(len(ways)))]()


@dataclass(frozen=True)
class WhimTask(Task):
    """Its verifier has whims."""

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        return str(generator.integers(1000))

    def answer(self, question: str) -> str:
        return "a"  # as the toy answers

    def verify(self, question: str, reply: str) -> object:
        return Whim.deed() if Whim.takes() else reply == "a"


@dataclass(frozen=True)
class WhimReward(RewardRule):
    """The verdict, or a whim."""

    follows_verdict: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> Any:
        return Whim.deed() if Whim.takes() else rollout.verdict


@dataclass(frozen=True)
class WhimRule(LearningRule):
    """Imitation, or a whim: instead of all, of a weight, of tokens, of notes."""

    def targets(self, experience: Experience) -> Any:
        rollouts = [rollout for one in experience.outcomes for rollout in one.rollouts]
        targets: list[Any] = [WeightedTarget.of(one, 1.0) for one in rollouts if one.reward]
        if not Whim.takes():
            return targets, experience.notes
        value: Any = Whim.deed()
        return Whim.one_of(
            lambda: value,
            lambda: ([*targets, value], experience.notes),
            lambda: (targets, value),
            lambda: ([WeightedTarget.of(rollouts[0], value)], experience.notes),
            lambda: ([WeightedTarget(rollouts[0].item, value, 1.0)], {"note": value}),
        )


@dataclass(frozen=True)
class WhimOperator(Mutation):
    """The parent again, or a whim: instead of all, of a rank, of a number."""

    def mutated(self, parent: AdapterWeights, generator: np.random.Generator) -> Any:
        child = AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)
        if not Whim.takes():
            return child
        value: Any = Whim.deed()
        return Whim.one_of(
            lambda: value,
            lambda: replace(child, rank=value),
            lambda: replace(child, scaling=value),
            lambda: replace(child, vector=np.array([value, *child.vector[1:]], dtype=np.float32)),
        )


@pytest.fixture(autouse=True)
def parts(own_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts, and little patience."""
    tasks.register("whim")(WhimTask)
    reward_rules.register("whim")(WhimReward)
    learning_rules.register("whim")(WhimRule)
    operators.register("whim")(WhimOperator)
    monkeypatch.setattr(fence, "PART_SECONDS", 0.03)
    monkeypatch.setattr(verification, "SECONDS", 0.03)


@pytest.mark.parametrize("part", ["verifier", "reward", "rule", "operator"])
def test_whatever_a_part_does_the_run_goes_on_or_stops_whole(
    part: str, cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breeding = {"at": 20_000, "mutation": "whim" if part == "operator" else "clone"}
    changes: dict[str, Any] = {
        "strategy": toy_ecology(mechanisms={"breeding": breeding, "refounding": {"least": 3}}),
        "families": ("whim",) if part == "verifier" else ("math.add",),
        "learning_rule": "whim" if part == "rule" else "expert_iteration",
        "reward": "whim" if part == "reward" else "verdict",
    }
    plan = toy_config(generations=6 if part == "operator" else 3, **changes)
    depths = None if part == "verifier" else plan.tasks.depths
    tasks_of_plan = plan.tasks.model_copy(update={"depths": depths})
    plan = plan.model_copy(update={"tasks": tasks_of_plan})

    def case(generator: np.random.Generator) -> None:
        monkeypatch.setattr(Whim, "generator", generator)
        monkeypatch.setattr(Whim, "share", float(generator.choice([0.05, 0.3, 1.0])))
        deed = DEEDS[int(generator.integers(len(DEEDS)))]
        monkeypatch.setattr(Whim, "deed", staticmethod(deed))
        folder = tmp_path / f"run-{generator.integers(1 << 60)}"
        state = start(plan, folder, host=ToyHost()).state
        assert state.ledger.total == 0
        store = BlobStore(folder / "blobs")
        for organelle in state.population.values():
            weights = store.weights(organelle.genome.weights)
            assert np.isfinite(weights.vector).all()
            assert math.isfinite(weights.scaling)

    Count(f"plug-ins: {part}").run(max(cases // 4, 1), case)
