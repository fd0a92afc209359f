"""The examples do what they say, typed as their first lines say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Learned

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples, to be run in."""
    copy = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(EXAMPLES, copy)
    return copy


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_runs(path: Path, folder: Path) -> None:
    if path.stem == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    words = ["run", path.name, "--out", f"runs/{path.stem}", "-q"]
    command = [sys.executable, "-m", "symbiont_ecology", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    events = list(read_events(folder / "runs" / path.stem / "events.jsonl"))
    assert any(isinstance(event, Acted) for event in events)
    if path.stem == "halve":
        children = [event for event in events if isinstance(event, Born) and event.parents]
        assert children
        assert {child.operator for child in children} == {"halve"}
    if path.stem == "grpo_kl":
        assert any(isinstance(event, Learned) and event.lessons for event in events)


def typed(folder: Path, *words: str) -> str:
    """What a program among the examples prints; nothing is asked of a hub."""
    places = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_is_evaluated_in_the_harness_by_a_program_and_by_its_command(folder: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs the extra lm-eval")
    command = ("-m", "symbiont_ecology")
    typed(folder, *command, "run", "lm_eval.yaml", "--out", "runs/elements", "-q")
    said = typed(folder, "evaluate_in_harness.py", "runs/elements")
    measured = dict(re.findall(r"^(\w+): (0\.\d{3}) ±", said, re.MULTILINE))
    assert {"host", "learned"} < set(measured)
    words = "run --model symbiont --model_args run=runs/elements,who=host --tasks elements"
    table = typed(folder, *command, "lm-eval", *words.split(), "--include_path", "harness")
    shown = float(measured["host"])
    assert any(f"{shown:.4f}"[:5] in line for line in table.splitlines() if "|acc" in line)


def test_adapters_go_from_trl_into_an_ecology_and_back(folder: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    said = typed(folder, "grpo_with_trl.py", "runs/trl")
    shares = dict(re.findall(r"^(\w+): (\d+)% of the held-out", said, re.MULTILINE))
    assert set(shares) == {"first", "organelle", "second"}
    assert all(int(share) >= 60 for share in shares.values())
