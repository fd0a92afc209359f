"""Every file of a run's folder is damaged in many ways. Then a resume ends in the bytes of a run
that nothing happened to, or refuses in one line; and what it refuses, a repair mends or names.

    pytest tests/fuzz/test_fuzz_folders.py --cases 2000 -s
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mutations import torn
from runs import resume, start
from symbiont_ecology.base.errors import EcologyError, EcologyWarning
from symbiont_ecology.run.verification import go_back
from toy import ToyHost, toy_config

STATE = ("state.json", "events.jsonl")
"""What must be equal, byte for byte."""


def tear(path: Path, draw: np.random.Generator) -> None:
    path.write_bytes(torn(path.read_bytes(), draw))


def empty(path: Path, draw: np.random.Generator) -> None:
    path.write_bytes(b"")


def delete(path: Path, draw: np.random.Generator) -> None:
    path.unlink()


def drop_a_line(path: Path, draw: np.random.Generator) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1] if draw.random() < 0.3 else lines[1:]))


def zero(path: Path, draw: np.random.Generator) -> None:
    data = path.read_bytes()
    at = int(draw.integers(len(data) + 1))
    path.write_bytes(data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :])


def be_a_folder(path: Path, draw: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()


def be_a_link(path: Path, draw: np.random.Generator) -> None:
    elsewhere = path.resolve().parents[1 + (path.parent.name == "blobs")] / f"{path.name}.elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


HARMS = (*[tear] * 5, empty, delete, drop_a_line, zero, be_a_folder, be_a_link)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that was stopped between two checkpoints, a complete one, and how both end."""
    place = tmp_path_factory.mktemp("runs")
    config = toy_config(seed=3, generations=8, checkpoint_every=2, families=("math.add",))
    left = iter(range(5, 0, -1))
    start(config, place / "stopped", host=ToyHost(), should_stop=lambda: next(left) == 1)
    start(config, place / "complete", host=ToyHost())
    return {"stopped": place / "stopped", "complete": place / "complete"}


def ending(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in STATE]


def attempt(what: Callable[[], object]) -> str:
    """Does something; returns what it was refused for, in one line."""
    try:
        with warnings.catch_warnings(action="ignore", category=EcologyWarning):
            what()
    except EcologyError as error:
        return str(error)
    return ""


def test_a_damaged_folder_ends_in_the_same_bytes_or_is_refused_in_one_line(
    runs: dict[str, Path], tmp_path: Path, cases: int
) -> None:
    expected = ending(runs["complete"])
    for case in range(cases):
        draw = np.random.default_rng([7, case])
        name = ("stopped", "complete")[case % 2]
        folder = tmp_path / str(case) / "run"
        shutil.copytree(runs[name], folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        top = [path for path in files if path.parent == folder]
        pool = top if draw.random() < 0.7 else files  # blobs are many
        path = pool[int(draw.integers(len(pool)))]
        harm = HARMS[int(draw.integers(len(HARMS)))]
        harm(path, draw)
        what = f"case {case}: {harm.__name__} {path.relative_to(folder)} of the {name} run"
        outside = sorted((tmp_path / str(case)).glob("*.elsewhere"))
        before = [one.read_bytes() for one in outside]
        goes_on = partial(resume, folder, host=ToyHost())
        first = attempt(goes_on)
        last = attempt(partial(go_back, folder)) + attempt(goes_on) if first else ""
        assert "\n" not in first + last, what
        assert last or ending(folder) == expected, what
        assert [one.read_bytes() for one in outside] == before, what
        shutil.rmtree(tmp_path / str(case))
