"""Runs on data that somebody wrote: what they ask, how they go on, how they are evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from lines import config, jsonl, quiz, rows
from runs import resume, start
from symbiont_ecology.base.errors import DataError, RunError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.tasks.splits import split_of
from toy import ToyHost, toy_ecology


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy ecology that lives on data and on a family of ours."""
    folder = tmp_path_factory.mktemp("lived")
    path = jsonl(folder / "quiz.jsonl", rows(300))
    start(
        config("math.add", quiz(path), generations=8, strategy=toy_ecology()),
        folder / "run",
        host=ToyHost(),
    )
    return folder


def test_a_run_asks_train_lines_alone_and_as_they_stand(lived: Path) -> None:
    prompts = {row["prompt"] for row in rows(300)}
    asked = set()
    for event in read_events(lived / "run/events.jsonl"):
        if isinstance(event, Acted) and event.cell == "quiz/short":
            asked |= {identity.split("/", 3)[3] for identity in event.items}
    assert len(asked) > 20
    assert asked <= prompts
    assert {split_of("quiz", prompt) for prompt in asked} == {"train"}
    candidates = LoadedRun.of_run(lived / "run")
    seen = {one.prompt for one in candidates.pool.observations if one.prompt.startswith("quiz")}
    assert seen <= {f"{prompt}\n" for prompt in prompts}
    answers = candidates.evaluate(candidates.items(30), ToyHost(), "learned").rollouts
    held = [one.item for one in answers if one.item.family == "quiz"]
    assert len(held) == 30
    assert all(split_of("quiz", one.prompt.rstrip()) == "holdout" for one in held)


def test_a_run_is_not_resumed_on_other_data(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start(config(quiz(file)), folder, host=ToyHost())
    text = file.read_text()
    longer = ["run.generations=8"]
    file.write_text(text.replace('"a"', '"b"', 1))
    with pytest.raises(
        RunError, match=r"task 'quiz' .* is not what the run in .* was founded with"
    ):
        resume(folder, overrides=longer, host=ToyHost())
    file.unlink()
    with pytest.raises(DataError, match="no such file"):
        resume(folder, overrides=longer, host=ToyHost())
    file.write_text(text.replace("\n", "\r\n\r\n"))  # other bytes, the same lines
    assert resume(folder, overrides=longer, host=ToyHost()).is_complete
