"""What a fault of a reward or of a learning rule costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faulty import FAULTS, Act, Chance, goes_wrong, learns, live_until, never_returns, of, raises
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.events import Learned, PartFailed, Quarantined
from symbiont_ecology.base.types import LearningBatch
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import (
    Experience,
    LearningRule,
    RewardRule,
    Targets,
    WeightedTarget,
    learning_rules,
    reward_rules,
)
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run.start import resume, start
from toy import ToyHost, toy_config

pytestmark = pytest.mark.usefixtures("faulty_parts")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        *FAULTS.values(),
        (lambda: float("nan"), "returned nan, expected a number from -1e+06 to 1e+06"),
        (lambda: 1e300, "returned 1e+300, expected"),
        (lambda: np.ones(3), "returned array([1., 1., 1.]), expected"),
    ],
)
def test_a_reward_that_fails_is_worth_the_least_and_is_named_once_a_generation(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 20, act)
    finished = start(learns(reward="moody"), tmp_path / "run", host=ToyHost())
    assert finished.is_complete
    failed = of(PartFailed, tmp_path / "run")
    assert {event.part for event in failed} == {"reward rule 'moody' (faulty.py)"}
    assert all(event.fault.startswith(said) for event in failed)
    assert len({event.generation for event in failed}) == len(failed)
    assert sum(event.failed for event in failed) == Chance.calls // 20 > 0
    assert all(0 < event.failed < event.calls for event in failed)


def test_an_answer_without_a_reward_gains_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards are below 0, so 0 would be the best of them."""
    seen: list[float] = []

    @dataclass(frozen=True)
    class Negative(RewardRule):
        """From −2 to −1, or none at all."""

        def __call__(self, rollout: Rollout) -> float:
            """Every third one fails."""
            return float("nan") if Chance.strikes() else rollout.verdict - 2

    @dataclass(frozen=True)
    class Witness(LearningRule):
        """Sees rewards."""

        def targets(self, experience: Experience) -> Targets:
            """None."""
            seen.extend(rollout.reward for one in experience.outcomes for rollout in one.rollouts)
            return (), experience.notes

    reward_rules.register("negative")(Negative)
    learning_rules.register("witness")(Witness)
    goes_wrong(monkeypatch, 3, lambda: None)
    start(learns(2, reward="negative", learning_rule="witness"), tmp_path / "run", host=ToyHost())
    assert set(seen) <= {-2.0, -1.0}
    assert seen.count(-2.0) >= len(seen) // 3 > 0


def test_a_part_that_does_nothing_but_fail_ends_the_run_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = tmp_path / "run", learns(12, reward="moody")
    live_until(6, plan, folder)
    goes_wrong(monkeypatch, 1, raises)
    said = r"^reward rule 'moody' \(faulty.py\) failed at each of its \d+ calls: .* no such luck"
    with pytest.raises(RunError, match=said):
        resume(folder, host=ToyHost())
    assert load_state(folder).generation >= 6
    goes_wrong(monkeypatch, 0, raises)  # mended
    assert resume(folder, host=ToyHost()).is_complete


def test_a_part_that_is_always_late_costs_seconds_and_not_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 1, never_returns)
    with pytest.raises(RunError, match=r"its \d+ calls: it took longer than 0.3 s"):
        start(learns(reward="moody"), tmp_path / "run", host=ToyHost())
    assert Chance.calls == 3


def a_target(**changes: Any) -> Callable[[Experience], object]:
    """What a rule says that wants one answer learned, with something wrong about it."""

    def said(experience: Experience) -> object:
        rollout = experience.outcomes[0].rollouts[0]
        return [replace(WeightedTarget.of(rollout, 1.0), **changes)], experience.notes

    return said


WRONG_LESSONS: dict[str, tuple[Act, str]] = {
    "no pair": (lambda: (), "returned (), expected targets and notes"),
    "no targets": (lambda: (["x"], {}), "returned 'x', expected a WeightedTarget"),
    "nothing to go through": (lambda: (3, {}), "raised TypeError"),
    "NaN": (
        lambda: a_target(weight=float("nan")),
        "returned the weight nan, expected numbers from -1e+06",
    ),
    "a huge number": (lambda: a_target(weight=10**400), "returned the weight 1000"),
    "a large number": (lambda: a_target(weight=1e300), "returned the weight 1e+300, expected"),
    "a weight in words": (lambda: a_target(weight="1"), "returned the weight '1'"),
    "too few weights": (lambda: a_target(weight=()), "returned the weight (), expected"),
    "foreign tokens": (lambda: a_target(token_ids=(1 << 40,)), "returned the tokens (1099511"),
    "tokens below 0": (lambda: a_target(token_ids=(-1,)), "returned the tokens (-1,), expected"),
    "tokens in words": (lambda: a_target(token_ids=("a",)), "returned the tokens ('a',)"),
    "notes that are none": (lambda: ([], {"a": float("inf")}), "returned the note 'a': inf"),
}


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_LESSONS.values()])
def test_a_rule_that_fails_teaches_nothing_and_is_named(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 4, act)
    start(learns(10, learning_rule="absent"), tmp_path / "run", host=ToyHost())
    failed = of(PartFailed, tmp_path / "run")
    assert [event.generation for event in failed] == [3, 7]
    for event in failed:
        assert event.part == "learning rule 'absent' (faulty.py)"
        assert event.fault.startswith(said)
        assert (event.calls, event.failed) == (1, 1)
    learned = {event.generation: event for event in of(Learned, tmp_path / "run")}
    for generation in (3, 7):
        if generation in learned:
            assert learned[generation].lessons == 0
    assert any(event.lessons for event in learned.values())
    assert not of(Quarantined, tmp_path / "run")


@dataclass
class Unnoticing(ToyHost):
    """Its third step makes a weight NaN, and says nothing of it."""

    def learn(self, batch: LearningBatch, *arguments: Any) -> Any:
        """As the toy, but for that."""
        weights, states, statistics = super().learn(batch, *arguments)
        if len(self.learned) == 3:
            vector = weights[0].vector.copy()
            vector[5] = np.nan
            weights[0] = replace(weights[0], vector=vector)
        return weights, states, statistics


def test_weights_that_are_not_finite_are_noticed_whoever_made_them(tmp_path: Path) -> None:
    plan = toy_config(generations=8, learning_rule="expert_iteration")
    finished = start(plan, tmp_path / "run", host=Unnoticing())
    assert finished.is_complete
    assert len(of(Quarantined, tmp_path / "run")) == 1
    assert finished.state.ledger.total == 0
