"""Rewards, rules, operators and other parts that anybody may write: what a fault of theirs costs.

Each part here is fine but for some calls, at which it does what a test says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from symbiont_ecology import fence
from symbiont_ecology.config import RunConfig
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.engine.build import check
from symbiont_ecology.engine.run import resume, start
from symbiont_ecology.errors import ConfigError, EcologyWarning, RunError
from symbiont_ecology.events import (
    Born,
    Event,
    Learned,
    PartFailed,
    Quarantined,
    Stillborn,
    VerifierFailed,
    read_events,
)
from symbiont_ecology.learning import (
    Experience,
    LearningRule,
    RewardRule,
    Targets,
    WeightedTarget,
    learning_rules,
    reward_rules,
)
from symbiont_ecology.operators import Mutation, Parent, operators
from symbiont_ecology.routing.allocators import Allocator, allocators
from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles
from symbiont_ecology.types import LearningBatch
from symbiont_ecology.weights import AdapterLayout, AdapterWeights
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

    def mutated(self, parent: Parent, generator: np.random.Generator) -> Any:
        """The child, or else."""
        if Chance.strikes():
            said: Any = Chance.act()
            return said(parent) if callable(said) else said
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)


@pytest.fixture(autouse=True)
def parts(own_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts, for as long as a test goes on."""
    reward_rules.register("moody")(Moody)
    learning_rules.register("absent")(Absent)
    operators.register("wild")(Wild)
    monkeypatch.setattr(Chance, "calls", 0)


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
    "raises": (raises, "raised ValueError: no such luck (test_faulty_parts.py line "),
    "leaves": (leaves, "raised SystemExit: 0 (test_faulty_parts.py line "),
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


# Rewards.


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
    assert {event.part for event in failed} == {"reward rule 'moody' (test_faulty_parts.py)"}
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


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"reward": "moody"}, "reward rule 'moody' (test_faulty_parts.py)"),
        ({"learning_rule": "absent"}, "learning rule 'absent' (test_faulty_parts.py)"),
    ],
)
def test_a_part_that_does_nothing_but_fail_ends_the_run_whole(
    changes: dict[str, Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = tmp_path / "run", learns(12, **changes)
    start(plan, tmp_path / "fine", host=ToyHost())
    live_until(6, plan, folder)
    goes_wrong(monkeypatch, 1, raises)
    with pytest.raises(RunError) as refused:
        resume(folder, host=ToyHost())
    said = str(refused.value)
    assert said.startswith(f"{part} failed at each of its last ")
    assert "raised ValueError: no such luck" in said
    assert "\n" not in said
    assert load_state(folder).generation >= 6
    goes_wrong(monkeypatch, 0, raises)  # mended
    assert resume(folder, host=ToyHost()).is_complete


def test_a_part_that_is_always_late_costs_seconds_and_not_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 1, never_returns)
    with pytest.raises(RunError, match=r"its last \d+ calls: it took longer than 0.3 s"):
        start(learns(reward="moody"), tmp_path / "run", host=ToyHost())
    assert Chance.calls == 3


def live_until(generation: int, plan: RunConfig, folder: Path) -> None:
    """A run that was interrupted in that generation."""
    lived = iter(range(1, generation + 1))
    start(plan, folder, host=ToyHost(), should_stop=lambda: next(lived) == generation)
    assert load_state(folder).generation == generation


# Learning rules.


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
    "too few weights": (lambda: a_target(weight=()), "returned 0 weights for "),
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
        assert event.part == "learning rule 'absent' (test_faulty_parts.py)"
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


# Operators.


def of_rank(rank: int) -> Callable[[Parent], AdapterWeights]:
    """Children of that rank."""

    def child(parent: Parent) -> AdapterWeights:
        vector = np.zeros(parent.layout.size(rank), dtype=np.float32)
        return AdapterWeights(parent.layout, rank, 1.0, vector)

    return child


def of_another_host(parent: Parent) -> AdapterWeights:
    layout = AdapterLayout((("policy", 3, 4),))
    return AdapterWeights(layout, 1, 1.0, np.zeros(layout.size(1), dtype=np.float32))


def in_double(parent: Parent) -> AdapterWeights:
    return AdapterWeights(parent.layout, parent.rank, 1.0, parent.vector.astype(np.float64))


def not_finite(parent: Parent) -> AdapterWeights:
    return replace(parent, vector=np.full_like(parent.vector, np.nan))


WRONG_CHILDREN: dict[str, tuple[Act, str]] = {
    "no weights": (lambda: 3.0, "returned float, expected AdapterWeights"),
    "rank 0": (lambda: of_rank(0), "returned rank 0, expected 1 to 4"),
    "a rank that no slot holds": (lambda: of_rank(40), "returned rank 40, expected 1 to 4"),
    "another host's": (lambda: of_another_host, "returned weights of another layout"),
    "another precision": (lambda: in_double, "raised ValueError: expected a float32 vector"),
    "NaN": (lambda: not_finite, "returned weights that are not finite"),
    "an infinite scaling": (
        lambda: lambda parent: replace(parent, scaling=float("inf")),
        "returned the scaling inf, expected a finite number",
    ),
}


@pytest.mark.parametrize(("act", "said"), [*FAULTS.values(), *WRONG_CHILDREN.values()])
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


def test_an_operator_that_does_nothing_but_fail_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_wrong(monkeypatch, 1, raises)
    with pytest.raises(
        RunError, match=r"^operator 'wild' \(test_faulty_parts.py\) failed at each of its"
    ):
        start(breeds(40), tmp_path / "run", host=ToyHost())
    assert load_state(tmp_path / "run").generation > 0


def test_a_run_with_faults_resumes_exactly(tmp_path: Path) -> None:
    """By the content of what they see, so that a call in a resumed process is the same."""

    @dataclass(frozen=True)
    class Picky(RewardRule):
        """Fails at answers of even length."""

        def __call__(self, rollout: Rollout) -> float:
            """The verdict, of the others."""
            if len(rollout.text) % 2 == 0:
                raise ValueError("even")
            return rollout.verdict

    reward_rules.register("picky")(Picky)
    plan = toy_config(generations=8, reward="picky")
    start(plan, tmp_path / "whole", host=ToyHost())
    start(plan, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    assert of(PartFailed, tmp_path / "whole")
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_who_fails_is_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Grumpy(Moody):
        """Another name, of which nobody has been warned."""

    reward_rules.register("grumpy")(Grumpy)
    goes_wrong(monkeypatch, 5, raises)
    with pytest.warns(EcologyWarning) as said:
        start(learns(4, reward="grumpy"), tmp_path / "run", host=ToyHost())
    (line,) = [str(one.message) for one in said if "grumpy" in str(one.message)]
    assert line.startswith("reward rule 'grumpy' (test_faulty_parts.py) raised ValueError: no such")
    assert "\n" not in line


# Verifiers, and parts without which nothing goes on.


@dataclass(frozen=True)
class Hopeless(Task):
    """Its verifier fails at every reply."""

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A number."""
        return str(generator.integers(10_000))

    def verify(self, question: str, reply: str) -> object:
        """Nothing."""
        raise LookupError("no idea")


def test_a_verifier_that_does_nothing_but_fail_ends_the_run(tmp_path: Path) -> None:
    tasks.register("hopeless")(Hopeless)
    plan = toy_config(families=("hopeless",))
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"depths": None})})
    with pytest.raises(RunError) as refused:
        start(plan, tmp_path / "run", host=ToyHost())
    said = str(refused.value)
    assert said.startswith("the verifier of 'hopeless' failed at each of its last ")
    assert "raised LookupError: no idea (test_faulty_parts.py line " in said


def test_verifiers_are_named_once_a_generation(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Shaky(Hopeless):
        """Its verifier fails at every third question."""

        def verify(self, question: str, reply: str) -> object:
            """Wrong, or nothing."""
            return False if int(question) % 3 else super().verify(question, reply)

    tasks.register("shaky")(Shaky)
    plan = learns(6, families=("shaky",))
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"depths": None})})
    start(plan, tmp_path / "run", host=ToyHost())
    failed = of(VerifierFailed, tmp_path / "run")
    assert len({event.generation for event in failed}) >= 4
    assert max(event.count for event in failed) > 1
    assert not of(PartFailed, tmp_path / "run")


@dataclass(frozen=True)
class Lost(Allocator):
    """Gives questions to nobody."""

    fade: float = 0.8

    def pick(self, known: Sequence[Any], given: Sequence[int], generator: Any) -> int:
        """Nobody."""
        if Chance.strikes():
            Chance.act()
        return 0


@dataclass(frozen=True)
class Mute(PromptStyle):
    """Words that fail."""

    def render(self, family: SyntheticTask, question: str) -> Any:
        """What it says."""
        return Chance.act()


@pytest.mark.parametrize("act", [raises, leaves], ids=["raises", "leaves"])
def test_where_nothing_goes_on_without_a_part_its_fault_is_one_line(
    act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocators.register("lost")(Lost)
    goes_wrong(monkeypatch, 40, act)
    with pytest.raises(RunError) as refused:
        start(toy_config(generations=30, allocator="lost"), tmp_path / "run", host=ToyHost())
    said = str(refused.value)
    assert said.startswith("a plug-in raised ")
    assert "(test_faulty_parts.py line " in said
    assert "\n" not in said
    assert load_state(tmp_path / "run").generation > 0


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (raises, "a plug-in raised ValueError: no such luck (test_faulty_parts.py line "),
        (leaves, "a plug-in raised SystemExit: 0 (test_faulty_parts.py line "),
        (lambda: None, "tasks.style: expected texts as prompts, got None"),
        (lambda: "half \ud800", "tasks.style: expected texts as prompts, got 'half"),
    ],
)
def test_a_style_that_fails_is_one_line_and_leaves_nothing_behind(
    act: Act, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt_styles.register("mute")(Mute)
    goes_wrong(monkeypatch, 1, act)
    plan = toy_config()
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"style": "mute"})})
    with pytest.raises((ConfigError, RunError)) as refused:
        start(plan, tmp_path / "run", host=ToyHost())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_part_that_cannot_be_made_is_one_line_before_a_model_is_loaded() -> None:
    @dataclass(frozen=True)
    class Unmade(Moody):
        """Cannot be made."""

        def __post_init__(self) -> None:
            raise OSError("no such thing")

    reward_rules.register("unmade")(Unmade)
    with pytest.raises(ConfigError, match="a plug-in raised OSError: no such thing"):
        check(toy_config(reward="unmade"))


@pytest.mark.parametrize("question", [None, 3, "\ud800"])
def test_a_task_that_draws_no_text_is_refused(question: object, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Hopeless):
        """Draws something else."""

        def draw(self, depth: str, generator: np.random.Generator) -> Any:
            """No text."""
            return question

    tasks.register("odd")(Odd)
    plan = toy_config(families=("odd",))
    plan = plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"depths": None})})
    with pytest.raises(ConfigError, match="task 'odd': expected a text as question, got "):
        start(plan, tmp_path / "run", host=ToyHost())
