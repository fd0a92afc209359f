"""A suite whose jobs Ray does leaves what one in processes of this machine leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.extensions.study.workers import STOP_FILE

pytest.importorskip("ray")


def left(folder: Path) -> dict[str, bytes]:
    """Outcomes and states."""
    names = ("outcome.json", "state.json", "events.jsonl")
    files = sorted(path for name in names for path in folder.rglob(name))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_jobs_done_by_ray_leave_the_same(
    protocol: Path, suite: Path, tmp_path: Path, symbiont: Symbiont
) -> None:
    folder = tmp_path / "by-ray"
    said = symbiont("suite", protocol, "--out", folder, "--workers", 2, "--executor", "ray")
    assert said.code == 0, said.err
    assert left(folder) == left(suite)
    assert not (folder / STOP_FILE).exists()


def test_an_executor_that_does_no_jobs_is_refused(protocol: Path, symbiont: Symbiont) -> None:
    said = symbiont("suite", protocol, "--executor", "rai", "--dry-run")
    assert said.code == 2
    assert "no executor 'rai'" in said.err
