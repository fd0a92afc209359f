"""Verifiers that fail, and parts without which nothing goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faulty import Act, Chance, goes_wrong, learns, leaves, of, raises
from symbiont_ecology.base.errors import ConfigError, RunError
from symbiont_ecology.base.events import PartFailed
from symbiont_ecology.ecology.routing.allocators import Allocator, allocators
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.run.start import start
from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle, prompt_styles
from toy import ToyHost, toy_config

pytestmark = pytest.mark.usefixtures("faulty_parts")


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
    assert said.startswith("the verifier of 'hopeless' failed at each of its ")
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
    failed = of(PartFailed, tmp_path / "run")
    assert len({event.generation for event in failed}) == len(failed) >= 4
    assert max(event.failed for event in failed) > 1


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
def test_a_style_that_fails_is_one_line_and_leaves_no_run(
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
    assert not (tmp_path / "run/state.json").exists()


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
