"""Without what POSIX alone has, a run begins, is locked, goes on, is verified and is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from symbiont_ecology.run.open_run import locked

PROGRAM = Path(__file__).parents[1] / "without_posix.py"


def typed(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_a_run_lives_where_there_is_no_posix(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("run.generations=2", "tasks.users.arrivals=1", "tasks.users.drift_at=1")
    typed("run", "demo", *words, "--out", run, "--quiet")
    assert (run / "state.json").is_file()
    with locked(run):
        assert "another process is writing" in typed("resume", run, "run.generations=3")
    assert "complete" in typed("resume", run, "run.generations=3")
    assert f"{run} is whole" in typed("verify", run)
    assert "answered by" in typed("infer", run, "math.add: 1+2")


@pytest.mark.skipif(sys.platform == "win32", reason="needs the right to make links")
def test_a_link_is_not_written_through_where_no_flag_says_so(tmp_path: Path) -> None:
    run, target = tmp_path / "run", tmp_path / "target"
    run.mkdir()
    target.write_text("mine")
    (run / "lock").symlink_to(target)
    assert "is a link" in typed("run", "demo", "run.generations=1", "--out", run, "--quiet")
    assert target.read_text() == "mine"
