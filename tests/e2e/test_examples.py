"""The examples do what they say, typed as their first lines say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import Acted, Born, Learned

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
    command = [sys.executable, "-m", "symbiont_ecology.cli", *words]
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


def test_every_line_of_the_data_has_a_prompt_and_a_target() -> None:
    for path in EXAMPLES.glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) >= 50
        assert all({"prompt", "target"} == set(json.loads(line)) for line in lines)
