"""What a fault of a part costs that anybody may write: a reward, a rule, an operator, a verifier,
and those without which nothing goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faulty import (
    FAULTS,
    Act,
    Chance,
    breeds,
    goes_wrong,
    learns,
    leaves,
    live_until,
    never_returns,
    of,
    raises,
)
from runs import resume, start
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.base.errors import ConfigError, EcologyWarning, RunError
from symbiont_ecology.base.events import Born, Learned, PartFailed, Quarantined, Stillborn
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
from symbiont_ecology.ecology.routing.allocators import Allocator, allocators
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles
from toy import ToyHost, toy_config

pytestmark = pytest.mark.usefixtures("faulty_parts")
WRONG_REWARDS: list[tuple[Act, str]] = [
    (lambda: float("nan"), "returned nan, expected a number from -1e+06 to 1e+06"),
    (lambda: 1e300, "returned 1e+300, expected"),
    (lambda: np.ones(3), "returned array([1., 1., 1.]), expected"),
]


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_REWARDS])
def test_a_reward_that_fails_is_worth_the_least_and_is_named_once_a_generation(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 20, act)
    assert start(learns(reward="moody"), tmp_path / "run", host=ToyHost()).is_complete
    failed = of(PartFailed, tmp_path / "run")
    assert {event.part for event in failed} == {"reward rule 'moody' (faulty.py)"}
    assert all(event.fault.startswith(said) for event in failed)
    assert len({event.generation for event in failed}) == len(failed)
    assert sum(event.failed for event in failed) == Chance.calls // 20 > 0
    assert all(0 < event.failed < event.calls for event in failed)


def test_an_answer_without_a_reward_gains_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    @dataclass(frozen=True)
    class Negative(RewardRule):
        def __call__(self, rollout: Rollout) -> float:
            return float("nan") if Chance.strikes() else rollout.verdict - 2  # 0 would be the best

    @dataclass(frozen=True)
    class Witness(LearningRule):
        def targets(self, experience: Experience) -> Targets:
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


def test_who_fails_is_warned_of_once_in_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 5, raises)
    for name in ("run", "another run of this process"):
        with pytest.warns(EcologyWarning) as said:
            start(learns(4, reward="moody"), tmp_path / name, host=ToyHost())
        assert len([one for one in said if "moody" in str(one.message)]) == 1


# Rules.


def a_target(**changes: Any) -> Callable[[Experience], object]:
    """What a rule says that wants one answer learned, with something wrong about it."""

    def said(experience: Experience) -> object:
        rollout = experience.outcomes[0].rollouts[0]
        return [replace(WeightedTarget.of(rollout, 1.0), **changes)], experience.notes

    return said


WRONG_LESSONS: list[tuple[Act, str]] = [
    (lambda: (), "returned (), expected targets and notes"),
    (lambda: (["x"], {}), "returned 'x', expected a WeightedTarget"),
    (lambda: (3, {}), "raised TypeError"),
    (lambda: a_target(weight=float("nan")), "returned the weight nan, expected numbers from"),
    (lambda: a_target(weight=10**400), "returned the weight 1000"),
    (lambda: a_target(weight="1"), "returned the weight '1'"),
    (lambda: a_target(weight=()), "returned the weight ()"),
    (lambda: a_target(token_ids=(1 << 40,)), "returned the tokens (1099511"),
    (lambda: a_target(token_ids=(-1,)), "returned the tokens (-1,), expected"),
    (lambda: a_target(token_ids=("a",)), "returned the tokens ('a',)"),
    (lambda: ([], {"a": float("inf")}), "returned the note 'a': inf"),
]


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_LESSONS])
def test_a_rule_that_fails_teaches_nothing_and_is_named(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 4, act)
    start(learns(10, learning_rule="absent"), tmp_path / "run", host=ToyHost())
    failed = of(PartFailed, tmp_path / "run")
    assert [(event.generation, event.calls, event.failed) for event in failed] == [
        (3, 1, 1),
        (7, 1, 1),
    ]
    assert {event.part for event in failed} == {"learning rule 'absent' (faulty.py)"}
    assert all(event.fault.startswith(said) for event in failed)
    learned = of(Learned, tmp_path / "run")
    assert not any(event.lessons for event in learned if event.generation in (3, 7))
    assert any(event.lessons for event in learned)
    assert not of(Quarantined, tmp_path / "run")


@dataclass
class Unnoticing(ToyHost):
    """Its third step makes a weight NaN, and says nothing of it."""

    def learn(self, batch: LearningBatch, *arguments: Any) -> Any:
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


# Operators.


def child(**changes: Any) -> Callable[[AdapterWeights], AdapterWeights]:
    """A child of no weights, with something wrong about it."""

    def made(parent: AdapterWeights) -> AdapterWeights:
        facts = {"layout": parent.layout, "rank": parent.rank, "scaling": 1.0} | changes
        vector = np.zeros(facts["layout"].size(facts["rank"]), facts.pop("dtype", np.float32))
        return AdapterWeights(**facts, vector=vector)

    return made


WRONG_CHILDREN: list[tuple[Act, str]] = [
    (lambda: 3.0, "returned float, expected AdapterWeights"),
    (lambda: child(rank=0), "returned rank 0, expected 1 to 4"),
    (lambda: child(rank=40), "returned rank 40, expected 1 to 4"),
    (lambda: child(layout=AdapterLayout((("a", 3, 4),)), rank=1), "returned weights of another"),
    (lambda: child(dtype=np.float64), "raised ValueError: expected a float32 vector"),
    (lambda: child(scaling=float("inf")), "returned the scaling inf, expected a finite number"),
    (
        lambda: lambda parent: replace(parent, vector=np.full_like(parent.vector, np.nan)),
        "returned weights that are not finite",
    ),
]


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_CHILDREN])
def test_a_child_that_cannot_live_is_not_born_and_is_paid_for(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 2, act)
    finished = start(breeds(), tmp_path / "run", host=ToyHost())
    assert finished.is_complete
    assert finished.state.ledger.total == 0
    lost, born = of(Stillborn, tmp_path / "run"), of(Born, tmp_path / "run")
    assert len(lost) == Chance.calls // 2 > 0
    for event in lost:
        assert event.operator == "wild"
        assert event.fault.startswith(said)
        assert event.parents
    assert not {event.id for event in lost} & {event.id for event in born}
    assert any(event.operator == "wild" for event in born)


# Verifiers.


@dataclass(frozen=True)
class Shaky(Task):
    """Its verifier fails at every ``period``-th question."""

    period: int = 3

    def draw(self, depth: str, generator: np.random.Generator) -> Any:
        return str(generator.integers(10_000))

    def verify(self, question: str, reply: str) -> object:
        if int(question) % self.period == 0:
            raise LookupError("no idea")
        return False


def of_family(plan: RunConfig, task: type[Task]) -> RunConfig:
    """The same run on a task of one's own."""
    tasks.register("own")(task)
    own = plan.tasks.model_copy(update={"depths": None, "families": ("own",)})
    return plan.model_copy(update={"tasks": own})


def test_a_verifier_that_does_nothing_but_fail_ends_the_run(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Hopeless(Shaky):
        period: int = 1

    said = r"^the verifier of 'own' failed at each of its .* raised LookupError: no idea \(test_f"
    with pytest.raises(RunError, match=said):
        start(of_family(toy_config(), Hopeless), tmp_path / "run", host=ToyHost())


def test_verifiers_are_named_once_a_generation(tmp_path: Path) -> None:
    start(of_family(learns(6), Shaky), tmp_path / "run", host=ToyHost())
    failed = of(PartFailed, tmp_path / "run")
    assert len({event.generation for event in failed}) >= 4
    assert max(event.failed for event in failed) > 1


# Parts without which nothing goes on.


@dataclass(frozen=True)
class Lost(Allocator):
    """Gives questions to nobody."""

    fade: float = 0.8

    def pick(self, *_: Any) -> int:
        if Chance.strikes():
            Chance.act()
        return 0


@dataclass(frozen=True)
class Mute(PromptStyle):
    """Words that fail."""

    def render(self, family: SyntheticTask, question: str) -> Any:
        return Chance.act()


def refused(plan: RunConfig, folder: Path) -> str:
    """Why a run ends, in one line."""
    with pytest.raises((ConfigError, RunError)) as error:
        start(plan, folder, host=ToyHost())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_where_nothing_goes_on_without_a_part_its_fault_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocators.register("lost")(Lost)
    goes_wrong(monkeypatch, 40, leaves)
    said = refused(toy_config(generations=30, allocator="lost"), tmp_path / "run")
    assert said.startswith("a plug-in raised SystemExit: 0 (test_faulty_parts.py line ")
    assert load_state(tmp_path / "run").generation > 0


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (raises, "a plug-in raised ValueError: no such luck (test_faulty_parts.py line "),
        (lambda: None, "tasks.style: expected texts as prompts, got None"),
        (lambda: "half \ud800", "tasks.style: expected texts as prompts, got 'half"),
    ],
)
def test_a_style_that_fails_is_one_line_and_leaves_no_run(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt_styles.register("mute")(Mute)
    goes_wrong(monkeypatch, 1, act)
    plan = toy_config()
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"style": "mute"})})
    assert said in refused(plan, tmp_path / "run")
    assert not (tmp_path / "run/state.json").exists()


@pytest.mark.parametrize("question", [None, "\ud800"])
def test_a_task_that_draws_no_text_is_refused(question: object, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Shaky):
        def draw(self, depth: str, generator: np.random.Generator) -> Any:
            return question

    said = refused(of_family(toy_config(), Odd), tmp_path / "run")
    assert "task 'own': expected a text as question, got " in said
