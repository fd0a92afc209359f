"""What a run took, in benchmarks: the CPU time of all its sittings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ascents import CPU_FILE, cpu_seconds, live
from symbiont_ecology import Run
from symbiont_ecology.config import load_config
from symbiont_ecology.engine.run import start


@pytest.fixture
def interrupted(small: list[str], tmp_path: Path) -> Path:
    """A run of four generations that was interrupted after the first one."""
    folder = tmp_path / "run"
    start(load_config("steady", small), folder, should_stop=lambda: True)
    return folder


def test_the_time_of_a_run_that_was_interrupted_is_that_of_all_sittings(interrupted: Path) -> None:
    (interrupted / CPU_FILE).write_text("1000.0")
    live(interrupted, "steady", 0)
    assert Run.open(interrupted).is_complete
    spent = cpu_seconds(interrupted)
    assert spent is not None
    assert 1000 < spent < 1100
    live(interrupted, "steady", 0)  # it is complete
    assert cpu_seconds(interrupted) == spent


@pytest.mark.parametrize("earlier", ["1000.0", None])
def test_a_sitting_that_fails_takes_time_and_one_that_is_not_known_makes_the_sum_unknown(
    interrupted: Path, earlier: str | None
) -> None:
    shutil.rmtree(interrupted / "blobs")
    if earlier is not None:
        (interrupted / CPU_FILE).write_text(earlier)
    with pytest.raises(subprocess.CalledProcessError):
        live(interrupted, "steady", 0)
    spent = cpu_seconds(interrupted)
    assert spent is None if earlier is None else spent is not None and spent > 1000
