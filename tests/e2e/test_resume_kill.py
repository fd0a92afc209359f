"""SIGKILL at random moments, in real processes: resumed, a run ends in the bytes of one that was
left alone.

    pytest tests/e2e/test_resume_kill.py --kills 20      # as often as the claim says

``benchmarks/kills.py`` kills every command that writes, on a language model.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "toy_run.py"
SPAN = 0.9  # seconds after a start within which its kill falls
PAUSE = 0.012  # seconds that every call of the host takes
ENOUGH = 20  # generations per kill: two pauses each, so that the run outlives them all


def launch(folder: Path, generations: int, pause: float) -> subprocess.Popen[str]:
    """The run in a process of its own, from the moment when it is about to touch its folder."""
    command = [sys.executable, str(SCRIPT), str(folder), str(generations), str(pause)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def finish(folder: Path, generations: int) -> dict[str, bytes]:
    """Lets the run come to its end; returns what must be equal."""
    process = launch(folder, generations, 0.0)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "done\n"), err
    files = [folder / "state.json", folder / "events.jsonl", folder / "config.yaml"]
    files += sorted((folder / "blobs").iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_run_killed_at_random_moments_equals_one_left_alone(tmp_path: Path, kills: int) -> None:
    folder, generations = tmp_path / "killed", ENOUGH * kills
    begun = []
    for moment in np.random.default_rng(2).uniform(0, SPAN, size=kills):
        process = launch(folder, generations, PAUSE)
        with pytest.raises(
            subprocess.TimeoutExpired
        ):  # else it came to its end, and nothing was killed
            process.wait(timeout=moment)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        log = folder / "events.jsonl"
        begun.append(log.read_bytes().count(b'"GenerationEnded"') if log.exists() else 0)
    assert finish(folder, generations) == finish(tmp_path / "whole", generations)
    assert begun[-1] >= kills, (
        f"the kills fell too early to tell anything: after {begun} generations"
    )
