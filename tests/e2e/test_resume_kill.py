"""SIGKILL at random moments, in real processes: resumed, a run ends in the bytes of one that was
left alone.

    pytest tests/e2e/test_resume_kill.py --kills 20      # as often as the claim says

``test_kills.py`` kills every command that writes, on a language model.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "toy_run.py"
SPAN = 0.1  # seconds within which a kill falls once a run has come so far
PAUSE = 0.012  # seconds that every call of the host takes
ENOUGH = 20  # generations per kill: two pauses each, so that the run outlives them all


def launch(folder: Path, generations: int, pause: float) -> subprocess.Popen[str]:
    """The run in a process of its own, from the moment when it is about to touch its folder."""
    command = [sys.executable, str(SCRIPT), str(folder), str(generations), str(pause)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def ended(folder: Path) -> int:
    """Generations in its log."""
    log = folder / "events.jsonl"
    return log.read_bytes().count(b'"GenerationEnded"') if log.exists() else 0


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
    draw = np.random.default_rng(2)
    for further, delay in zip(
        draw.integers(0, ENOUGH // 2, kills), draw.uniform(0, SPAN, kills), strict=True
    ):
        process, wanted = launch(folder, generations, PAUSE), ended(folder) + further
        while ended(folder) < wanted:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(PAUSE / 4)
        with pytest.raises(
            subprocess.TimeoutExpired
        ):  # else it came to its end, and nothing was killed
            process.wait(timeout=delay)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert finish(folder, generations) == finish(tmp_path / "whole", generations)
