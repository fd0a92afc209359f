"""The scripts that are commands under other names, and the paper's runs one after the other."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from hosts import add_chat_template, make_host
from said import Symbiont

SCRIPTS = Path(__file__).parents[2] / "scripts"
PAPER = SCRIPTS / "run_paper_ecology_suite.sh"
DOORS = {
    "run_evolution": "run",
    "run_sft": "sft",
    "evaluate_holdout": "evaluate",
    "generate_grid_datasets": "data",
    "paper_pack": "pack",
    "benchmark_suite": "suite --ci",
}


def paper(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The paper's runs, with everything they leave in a folder."""
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(folder)}
    command = [str(PAPER), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "command"), DOORS.items())
def test_a_door_is_a_command_and_says_which(script: Symbiont, name: str, command: str) -> None:
    said = script(name, "--help")
    assert said.code == 0
    assert f"Usage: symbiont {command.split()[0]}" in said.out
    assert said.err == f"this is: symbiont {command} --help\n"
    said = script(name, "--no-such-option")
    assert said.code == 2
    assert "No such option" in said.err
    assert len((SCRIPTS / f"{name}.py").read_text().splitlines()) <= 15


def test_every_door_can_be_tried_without_doing_anything(
    script: Symbiont, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script("run_evolution", "steady", *small, "--out", "run", "--quiet").code == 0
    before = sorted(tmp_path.rglob("*"))
    for words, expected in (
        (["run_evolution", "demo", "--dry-run"], "nothing was done"),
        (
            ["run_sft", "--match", "run", "--rates", "0.01,0.02", "--dry-run"],
            "rates 0.01, 0.02; ranks 1",
        ),
        (
            ["evaluate_holdout", "run", "--per-cell", "3", "--dry-run"],
            "questions   6 (3 per cell, in-",
        ),
        (
            ["generate_grid_datasets", "math.add", "--out", "data", "--dry-run"],
            "would be written: data/train",
        ),
        (["paper_pack", "run", "--dry-run"], "pack      docs/paper_packs/run"),
        (["benchmark_suite", "seeds=[0]", "--dry-run"], "3 to report"),
    ):
        said = script(*words)
        assert said.code == 0, said.err
        assert expected in said.out
        assert "nothing was done" in said.out
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run_evolution", "dmo"], "did you mean 'demo'?"),
        (["run_sft", "demo", "--dry-run"], "expected --amount N"),
        (["evaluate_holdout", "nowhere", "--dry-run"], "no run in nowhere"),
        (
            ["evaluate_holdout", "--adapter", "x", "--holdout", "y", "--dry-run"],
            "cannot read questions from y",
        ),
        (
            ["generate_grid_datasets", "math.ad", "--out", "x", "--dry-run"],
            "did you mean 'math.add'?",
        ),
        (["paper_pack", "nowhere", "--dry-run"], "no run in nowhere"),
        (["benchmark_suite", "ci", "--dry-run"], "expected one protocol or --ci, got ci ci"),
    ],
)
def test_a_wrong_word_at_a_door_is_one_line(
    script: Symbiont, words: list[str], message: str
) -> None:
    said = script(*words)
    assert said.code in (1, 2)
    lines = said.err.strip().splitlines()
    _, line = (line for line in lines if not line.endswith(" …"))  # what is loading
    assert line.startswith("error: ")
    assert message in line


def test_a_door_is_found_from_anywhere(tmp_path: Path) -> None:
    words = [sys.executable, SCRIPTS / "benchmark_suite.py", "--dry-run"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.startswith("protocol  ci ")
    assert said.stderr == "this is: symbiont suite --ci --dry-run\n"


def test_the_papers_runs_can_be_tried_and_mistyped(tmp_path: Path) -> None:
    said = paper("all", "--dry-run", folder=tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("Qwen/Qwen3-0.6B on cuda") == 4
    assert f"pack        {tmp_path / 'out' / 'packs' / 'paper_qwen3'}" in said.stdout
    assert not list(tmp_path.iterdir())
    assert "scripts/run_paper_ecology_suite.sh all" in paper("--help", folder=tmp_path).stdout
    for words, message in ((["al"], "got 'al'"), (["ecology", "sed=1"], "did you mean 'seed'?")):
        said = paper(*words, folder=tmp_path / "out")
        assert said.returncode == 2
        assert message in said.stderr


def test_a_step_of_the_papers_runs_goes_on_when_it_is_typed_again(tmp_path: Path) -> None:
    host = add_chat_template(make_host(tmp_path / "host", layers=1))
    tiny = [f"host.model={host}", "host.device=cpu", "host.dtype=float32", "host.memory_mb=500"]
    short = ["tasks.families=[math.add]", "tasks.depths=[short]", "run.train_flops=1e9"]
    said = paper("single", *tiny, *short, folder=tmp_path / "out")
    assert said.returncode == 0, said.stderr
    done = (tmp_path / "out" / "single" / "state.json").read_bytes()
    said = paper("single", *tiny, *short, folder=tmp_path / "out")
    assert said.returncode == 0, said.stderr
    assert "complete" in said.stdout
    assert (tmp_path / "out" / "single" / "state.json").read_bytes() == done
    assert "single is there" in paper("single", "--dry-run", folder=tmp_path / "out").stdout
    said = paper("single", *tiny, *short, "seed=1", folder=tmp_path / "out")
    assert said.returncode == 2
    assert "can only change run.generations" in said.stderr
    assert paper("single", "run.train_flops=2e9", folder=tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "single" / "state.json").read_bytes() != done


@pytest.mark.parametrize(
    ("seconds", "said"), [([], ""), ([61.0, 70.2], " A demo took 61 to 70 s on two cores.")]
)
def test_demos_that_were_interrupted_took_a_time_that_nobody_knows(
    seconds: list[float], said: str
) -> None:
    demo_lives = runpy.run_path(str(SCRIPTS / "evidence.py"))["demo_lives"]
    counts = {"births": [5, 6], "deaths": [1, 1], "shared": [3, 3], "pure": [1.0, 0.9]}
    assert demo_lives({**counts, "seconds": seconds}).endswith(f"were of their own kind.{said}")
