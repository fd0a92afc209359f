"""A task of one's own, in three functions: it lives a run, with a verifier that may fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, GenerationEnded, PartFailed
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.start import resume, start
from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.splits import split_of
from toy import ToyHost, toy_config, toy_ecology

DEPTHS = ("easy", "odd", "hard")
SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}


@dataclass(frozen=True)
class Letters(Task):
    """Which letter a number stands for: one that the toy host can say."""

    depths: ClassVar[tuple[str, ...]] = DEPTHS

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A number, a larger one at every depth."""
        return str(int(generator.integers(0, 1000)) + 1000 * DEPTHS.index(depth))

    def prompt(self, question: str) -> str:
        """As the toy host reads a task that it does not know."""
        return f"{self.name}: {question}"

    def verify(self, question: str, reply: str) -> bool:
        """The same letter for every number: there is something to learn."""
        return reply == "b"


@dataclass(frozen=True)
class Fragile(Letters):
    """The same with a verifier that fails on some questions."""

    def verify(self, question: str, reply: str) -> Any:
        """Nonsense for one question of ten, an error for another."""
        if question.endswith("3"):
            return None
        if question.endswith("7"):
            raise ValueError(f"no answer to {question} is known")
        return super().verify(question, reply)


@pytest.fixture(autouse=True)
def letters(own_parts: None) -> None:
    """The tasks, for as long as a test goes on."""
    tasks.register("letters")(Letters)
    tasks.register("fragile")(Fragile)


def config(
    name: str = "letters", depths: tuple[str, ...] | None = None, **changes: Any
) -> RunConfig:
    plan = toy_config(families=(name,), **changes)
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"depths": depths})})


@pytest.mark.parametrize("strategy", [SINGLE, toy_ecology()], ids=lambda spec: spec["kind"])
def test_a_task_of_three_functions_is_learned_at_depths_of_its_own(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    start(config(generations=25, strategy=strategy), tmp_path / "run", host=ToyHost())
    events = list(read_events(tmp_path / "run/events.jsonl"))
    acted = [event for event in events if isinstance(event, Acted)]
    assert {event.cell for event in acted} == {f"letters/{depth}" for depth in DEPTHS}
    for identity in (identity for event in acted for identity in event.items):
        family, depth, variant, question = identity.split("/")
        assert (family, variant) == ("letters", "0")
        assert int(question) // 1000 == DEPTHS.index(depth)
        assert split_of("letters", question) == "train"
    right = [event.accuracy or 0.0 for event in events if isinstance(event, GenerationEnded)]
    assert sum(right[-5:]) / 5 > max(sum(right[:3]) / 3 + 0.25, 0.75)


def test_a_verifier_that_fails_is_logged_and_the_run_goes_on_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    finished = start(config("fragile", generations=8), folder, host=ToyHost())
    assert finished.is_complete
    assert finished.state.ledger.total == 0
    events = list(read_events(folder / "events.jsonl"))
    failed = [event for event in events if isinstance(event, PartFailed)]
    assert {event.part for event in failed} == {"the verifier of 'fragile'"}
    said = ("returned None, expected True, False or a number", "raised ValueError: no answer to ")
    assert all(event.fault.startswith(said) for event in failed)
    expected = wrong = 0
    for acted in (event for event in events if isinstance(event, Acted)):
        for number, identity in enumerate(acted.items):
            verdicts = acted.verdicts[number * acted.samples : (number + 1) * acted.samples]
            assert len(verdicts) == acted.samples
            if identity[-1] in "37":
                expected += acted.samples
                assert set(verdicts) == {0.0}
            else:
                wrong += verdicts.count(0.0)
    assert sum(event.failed for event in failed) == expected > 0
    assert len({event.generation for event in failed}) == len(failed)
    assert wrong > 0  # and a wrong answer is no fault


def test_an_evaluation_counts_what_verifiers_failed_at(tmp_path: Path) -> None:
    start(config("fragile", generations=2), tmp_path / "run", host=ToyHost())
    run = LoadedRun.of_run(tmp_path / "run")
    evaluation = run.evaluate(run.items(30), ToyHost(), "host")
    faults = [rollout.fault for rollout in evaluation.rollouts if rollout.fault]
    counted = evaluation.summary()["verifier_faults"]
    assert isinstance(counted, dict)
    assert sum(counted.values()) == len(faults) > 0
    assert all(fault.startswith("fragile: r") for fault in counted)


def test_a_run_with_verifiers_that_fail_resumes_exactly(tmp_path: Path) -> None:
    plan = config("fragile", generations=6)
    start(plan, tmp_path / "whole", host=ToyHost())
    start(plan, tmp_path / "parts", host=ToyHost(), should_stop=lambda: True)
    while not resume(tmp_path / "parts", host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    for file in ("state.json", "events.jsonl"):
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize(("part", "spec"), [("learning_rule", "supervised"), ("reward", "shaped")])
def test_what_reads_reference_answers_is_refused_where_there_are_none(part: str, spec: str) -> None:
    learning = {"learning_rule": "policy_gradient"} if part == "reward" else {}
    plan = config(strategy=SINGLE).model_copy(update={**learning, part: spec})
    with pytest.raises(ConfigError, match=f"{part}: expected reference answers, 'letters' has"):
        check(plan)
