"""Learning rules of one's own: the host's log-probabilities, and a weight for every token."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from runs import start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Learned, Settled
from symbiont_ecology.base.types import HOST_SLOT, LearningBatch, Lesson
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.learning import (
    Experience,
    LearningRule,
    Targets,
    WeightedTarget,
    learning_rules,
)
from toy import ToyHost, toy_config

SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
FAMILIES = ("math.add", "string.sort", "logic.bool")


@dataclass(frozen=True)
class NearHost(LearningRule):
    """Right answers, each token with a weight by how far the adapter is from the host there."""

    needs_host_log_probabilities: ClassVar[bool] = True
    met: ClassVar[list[Rollout]] = []

    def targets(self, experience: Experience) -> Targets:
        """One target for every right answer."""
        rollouts = [rollout for one in experience.outcomes for rollout in one.rollouts]
        self.met.extend(rollouts)
        targets = []
        for rollout in rollouts:
            if rollout.reward == 1.0:
                assert rollout.host_log_probabilities is not None
                drift = rollout.log_probabilities - rollout.host_log_probabilities
                targets.append(WeightedTarget.of(rollout, tuple((1.0 - 0.01 * drift).tolist())))
        return targets, experience.notes


@dataclass(frozen=True)
class Listener(LearningRule):
    """Needs the host's log-probabilities, and teaches nothing."""

    needs_host_log_probabilities: ClassVar[bool] = True
    met: ClassVar[list[Rollout]] = NearHost.met

    def targets(self, experience: Experience) -> Targets:
        """None."""
        self.met.extend(rollout for one in experience.outcomes for rollout in one.rollouts)
        return (), experience.notes


@pytest.fixture(autouse=True)
def rules(own_parts: None) -> None:
    """The rules, for as long as a test goes on."""
    NearHost.met.clear()
    learning_rules.register("near_host")(NearHost)
    learning_rules.register("listener")(Listener)


@dataclass
class Scribe(ToyHost):
    """A toy that remembers its lessons."""

    lessons: list[Lesson] = field(default_factory=list)

    def learn(self, batch: LearningBatch, *arguments: Any) -> Any:
        """As the toy."""
        self.lessons.extend(batch.lessons)
        return super().learn(batch, *arguments)


def test_every_rollout_has_the_bare_hosts_log_probabilities_of_its_tokens(tmp_path: Path) -> None:
    start(toy_config(generations=10, learning_rule="near_host"), tmp_path / "run", host=ToyHost())
    met, host = NearHost.met, ToyHost()
    expected = host.score(
        [rollout.item.prompt for rollout in met],
        [rollout.token_ids for rollout in met],
        [HOST_SLOT] * len(met),
    )
    is_far = []
    for rollout, values in zip(met, expected, strict=True):
        assert rollout.host_log_probabilities is not None
        np.testing.assert_array_equal(rollout.host_log_probabilities, values)
        is_far.append(not np.allclose(rollout.log_probabilities, values, atol=1e-3))
    assert any(is_far)


@pytest.mark.parametrize("rule", ["near_host", "listener"])
def test_who_is_scored_pays_for_it_and_the_log_says_so(rule: str, tmp_path: Path) -> None:
    host = ToyHost()
    plan = toy_config(generations=6, learning_rule=rule)
    spent = start(plan, tmp_path / "run", host=host).state.spent
    events = list(read_events(tmp_path / "run/events.jsonl"))
    assert spent.flops == sum(e.flops for e in events if isinstance(e, Acted | Learned))
    rate = checkpoint.load_state(tmp_path / "run").mean_rollout_flops
    flops: dict[tuple[int, str], int] = {}
    for event in events:
        if isinstance(event, Acted | Learned) and event.id != HOST:
            key = event.generation, event.id
            flops[key] = flops.get(key, 0) + event.flops
        elif isinstance(event, Settled):
            paid = flops.pop((event.generation, event.id), 0)
            assert event.cost == plan.economy.cost(paid, rate)
    assert not flops
    scoring = sum(
        host.shape.scoring_flops(0, len(rollout.item.prompt) + 1, len(rollout.token_ids))
        for rollout in NearHost.met
    )
    learned = [event for event in events if isinstance(event, Learned)]
    total = sum(event.flops for event in learned)
    assert total == scoring if rule == "listener" else total > scoring > 0
    assert any(event.lessons for event in learned) == (rule == "near_host")
    budget = sum(event.flops for event in events if isinstance(event, Acted)) + total
    assert spent.flops == budget


def test_who_cannot_learn_is_not_scored(tmp_path: Path) -> None:
    host = ToyHost()
    frozen = {"kind": "frozen", "founders": 3, "questions": 3}
    plan = toy_config(generations=4, strategy=frozen, learning_rule="near_host")
    start(plan, tmp_path / "run", host=host)
    assert host.scored == []
    events = read_events(tmp_path / "run/events.jsonl")
    assert not [event for event in events if isinstance(event, Learned)]


def test_a_weight_for_every_token_reaches_the_lesson(tmp_path: Path) -> None:
    host = Scribe()
    plan = toy_config(generations=8, strategy=SINGLE, learning_rule="near_host")
    start(plan, tmp_path / "run", host=host)
    expected = []
    for rollout in NearHost.met:
        if rollout.reward == 1.0:
            drift = rollout.log_probabilities - rollout.host_log_probabilities
            weights = tuple((1.0 - 0.01 * drift).tolist())
            expected.append((rollout.item.prompt, rollout.token_ids, weights))
    lessons = [(one.prompt, one.completion, one.weight) for one in host.lessons]
    assert lessons == expected
    assert len(lessons) > 20
    for lesson in host.lessons:
        assert isinstance(lesson.weight, tuple)
        assert len(lesson.weight) == len(lesson.completion)
    assert any(len(set(lesson.weight)) > 1 for lesson in host.lessons)  # type: ignore[arg-type]
