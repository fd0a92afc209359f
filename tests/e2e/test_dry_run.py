"""What a run would take is said before it is begun."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from lines import jsonl, rows
from said import Symbiont
from symbiont_ecology import Run, load_config
from symbiont_ecology.model.locating import EMBEDDED_FOLDER
from symbiont_ecology.run.build import build_host
from symbiont_ecology.run.forecast import estimate_run

DRY = "--dry-run"


def test_a_dry_run_tells_memory_and_time_and_writes_nothing(
    symbiont: Symbiont, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tmp_path / "host"
    shutil.copytree(EMBEDDED_FOLDER, host)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    said = symbiont("run", "steady", *small, f"host.model={host}", DRY)
    assert said.code == 0
    assert re.search(r"memory +\d+ MB for the host, at most \d+ MB for a batch", said.out)
    assert re.search(r"time +[\d.e+]+ s for a generation", said.out)
    assert list(Path().iterdir()) == []
    (host / "model.safetensors").unlink()
    said = symbiont("run", "steady", *small, f"host.model={host}", DRY)
    assert "expected weights" in said.error
    said = symbiont("run", "steady", *small, "host.model=somebody/model", DRY)
    assert "not known: the host would be fetched first" in said.out


def test_a_dry_run_tells_the_rows_of_data_and_which_are_too_long(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    path = jsonl(tmp_path / "quiz.jsonl", rows(100))
    source = f"tasks.families=[{{kind: file, name: quiz, path: {path}}}]"
    said = symbiont("run", "steady", source, "tasks.depths=null", DRY)
    assert said.code == 0, said.err
    assert re.search(r"rows of quiz +\d+ train, \d+ holdout, \d+ selection", said.out)
    assert re.search(r"lengths +at most \d+ tokens with the reply; the host takes \d+\n", said.out)
    jsonl(path, [*rows(100), {"prompt": "words " * 1000, "target": "x"}])
    said = symbiont("run", "steady", source, "tasks.depths=null", DRY)
    assert "shorten 1 of 101 rows, first 'words words" in said.out


@pytest.mark.parametrize("budget", ["run.train_tokens=10000", "run.train_flops=6e10"])
@pytest.mark.parametrize(
    "lessons",
    [("learning_rule=policy_gradient",), ("learning_rule=supervised", "strategy.samples=0")],
    ids=["rollouts", "reads"],
)
def test_a_run_lives_about_as_long_as_is_estimated(
    budget: str, lessons: tuple[str, ...], tmp_path: Path
) -> None:
    words = ["run.generations=1000", "run.train_flops=null", budget, *lessons]
    config = load_config("steady_single", words)
    generation, whole = estimate_run(config, build_host(config))
    run = Run.start(config, folder=tmp_path / "run").finish()
    assert whole / generation == pytest.approx(run.state.generation, rel=0.25)
