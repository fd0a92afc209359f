"""A calibration finds what was made sick on purpose, and a healthy one goes on as if it had never
stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from said import Symbiont
from symbiont_ecology.run import build
from symbiont_ecology.run import run as run_object
from toy import ToyHost

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "symbiont_ecology"]
SMALL = [
    "tasks.families=[math.add,string.sort,logic.bool]",
    "tasks.depths=[short]",
    "strategy={founders: 4, capacity: 7, questions: 3, samples: 3, learning_rate: 0.1, "
    "mechanisms: {breeding: {at: 20000}, refounding: {least: 4}}}",
    "economy={dowry: 12000, grace: 1, cap: 40000}",
    "--generations",
    "10",
]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the config names, the host is a toy."""
    for module in (build, run_object):
        monkeypatch.setattr(module, "build_host", lambda config: ToyHost())


def books(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "state.json").read_bytes(), (folder / "events.jsonl").read_bytes()


def verdict(folder: Path) -> dict[str, Any]:
    health: dict[str, Any] = json.loads((folder / "health.json").read_text())
    return health


SICK = {
    "everyone is bankrupt": ["economy={base: 100, slope: 0, lowest: 0, highest: 100}"],
    "nothing is right": ["tasks.families=[{kind: file, name: riddle, path: riddles.jsonl}]"],
}


@pytest.mark.parametrize("name", SICK)
def test_what_is_sick_on_purpose_is_said_in_words(
    symbiont: Symbiont, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    riddles = [
        {"prompt": f"{depth} riddle: {n}", "target": f"none of {n} doors", "depth": depth}
        for n in range(100)
        for depth in ("short", "medium")
    ]
    Path("riddles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in riddles))
    folder = tmp_path / "run"
    said = symbiont("calibrate", "steady", *SICK[name], "--out", folder)
    assert said.code == 4
    assert f"sick: {name}\n  seen  " in said.out
    line = said.err.strip().splitlines()[-1]
    assert line.startswith(f"error: sick after 30 generations ({name}): mend the config")
    assert line.endswith(f"symbiont resume {folder} run.generations=50")
    assert len(verdict(folder)["findings"]) == 1


def test_a_healthy_run_equals_one_that_never_stopped(symbiont: Symbiont, tmp_path: Path) -> None:
    few = ["tasks.families=[math.add,math.max]", "strategy.questions=3", "run.checkpoint_every=2"]
    ends = ["--generations", 3, "--full", 5, "--out", tmp_path / "run"]
    words = ["calibrate", "steady", *few, *ends]
    said = symbiont(*words)
    assert said.code == 0, said.err
    whole = ["run.generations=5", "run.train_flops=null"]
    assert symbiont("run", "steady", *few, *whole, "--out", tmp_path / "whole", "-q").code == 0
    assert books(tmp_path / "run") == books(tmp_path / "whole")
    again = symbiont(*words, "--quiet")
    assert (again.code, again.out, again.err) == (0, "", "")
    assert books(tmp_path / "run") == books(tmp_path / "whole")


@pytest.mark.usefixtures("toy")
def test_a_sick_run_stays_where_it_is_and_can_go_on_all_the_same(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    sick = SICK["everyone is bankrupt"]
    words = ["calibrate", "steady", *SMALL, *sick, "--out", tmp_path / "run", "--quiet"]
    for _ in range(2):
        said = symbiont(*words)
        assert (said.code, said.out) == (4, "")
        assert "everyone is bankrupt" in said.error
        assert json.loads((tmp_path / "run" / "state.json").read_text())["generation"] == 10
    assert symbiont("resume", tmp_path / "run", "run.generations=12", "-q").code == 0
    assert symbiont(*words).code == 4  # the calibration is what it was


INTERRUPTED = """
import signal, sys
from symbiont_ecology.cli import main
from symbiont_ecology.run import run as run_object
from toy import ToyHost

at = int(sys.argv.pop(1))


class Interrupting(ToyHost):
    def learn(self, *arguments):
        if len(self.learned) == at:
            signal.raise_signal(signal.SIGINT)
        return super().learn(*arguments)


run_object.build_host = lambda config: Interrupting()
sys.argv[0] = "symbiont"
main()
"""


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("at", [3, 9, 10])  # of 10: within, in the last generation, behind it
def test_ctrl_c_is_safe_wherever_it_comes(symbiont: Symbiont, tmp_path: Path, at: int) -> None:
    words = ["calibrate", "steady", *SMALL, "--full", "12", "--out"]
    assert symbiont(*words, tmp_path / "whole", "-q").code == 0
    said = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(at), *words, tmp_path / "run", "-q"],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
    )
    assert said.returncode == 130, said.stderr
    assert f"after generation {at}; go on with: symbiont calibrate steady" in said.stderr
    assert f"--out {tmp_path / 'run'}" in said.stderr
    assert symbiont(*words, tmp_path / "run").code == 0
    assert books(tmp_path / "run") == books(tmp_path / "whole")
    assert verdict(tmp_path / "run") == verdict(tmp_path / "whole")


@pytest.mark.usefixtures("toy")
def test_the_final_holdout_is_answered_once(symbiont: Symbiont, tmp_path: Path) -> None:
    row = {"prompt": "math.add: 12+7\n", "target": "=19", "family": "math.add", "depth": "short"}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n")
    last = f"run.final_holdout={tmp_path / 'questions.jsonl'}"
    for _ in range(2):
        words = ("calibrate", "steady", *SMALL, last, "--full", 10, "--out", tmp_path / "run")
        assert symbiont(*words).code == 0
    assert len((tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()) == 1
