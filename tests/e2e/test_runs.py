"""``symbiont runs``: what is there, and what may go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology.engine.living import locked


@pytest.fixture
def three(lived: Path, tmp_path: Path) -> Path:
    """A folder with three runs, the third the newest, and something else."""
    for number in (1, 2, 3):
        run = shutil.copytree(lived, tmp_path / f"run-{number}")
        for path in run.rglob("*"):
            os.utime(path, (1e9 + number, 1e9 + number))
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "protocol.json").write_text("{}")
    return tmp_path


def test_the_newest_comes_first_with_how_far_it_is(symbiont: Symbiont, three: Path) -> None:
    said = symbiont("runs", three, "--json", "-")
    rows = json.loads(said.out)
    assert [Path(row["folder"]).name for row in rows] == ["run-3", "run-2", "run-1"]
    assert {row["state"] for row in rows} == {"complete"}
    assert {row["strategy"] for row in rows} == {"ecology"}
    assert {row["generation"] for row in rows} == {4}
    shown = symbiont("runs", three).out
    assert "3 runs" in shown
    assert "suite" not in shown


def test_a_narrow_terminal_cuts_no_number(
    symbiont: Symbiont, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = symbiont("runs", three).out
    assert "…" not in shown
    assert shown.count(" complete\n") == 3


def test_all_but_the_newest_go_and_suites_stay(symbiont: Symbiont, three: Path) -> None:
    assert "3 runs would be deleted" not in symbiont("runs", three, "--keep", "3").err
    refused = symbiont("runs", three, "--keep", "1", "--json", three / "list.json")
    assert refused.code == 1
    assert "2 runs would be deleted" in refused.err
    assert (three / "run-1").exists()
    assert symbiont("runs", three, "--keep", "1", "--yes").code == 0
    assert sorted(path.name for path in three.iterdir()) == ["list.json", "run-3", "suite"]


def test_what_a_killed_deletion_left_is_not_listed_and_goes_with_the_next(
    symbiont: Symbiont, three: Path
) -> None:
    (three / "run-2").rename(three / ".run-2.removed")  # where a deletion begins
    shutil.copytree(three / "run-1", three / ".run-3.removed")  # there is a new run of that name
    assert "2 runs" in symbiont("runs", three).out
    assert symbiont("runs", three, "--keep", "2", "--yes").code == 0
    assert sorted(path.name for path in three.iterdir()) == ["run-1", "run-3", "suite"]


def test_a_run_that_is_being_written_stays(symbiont: Symbiont, three: Path) -> None:
    with locked(three / "run-2"):
        said = symbiont("runs", three, "--keep", "0", "--yes")
    assert said.code == 1
    assert "another process is writing" in said.err
    assert (three / "run-2" / "events.jsonl").exists()


def test_a_damaged_run_is_named_and_a_link_is_not_followed(
    symbiont: Symbiont, three: Path, lived: Path
) -> None:
    (three / "run-1" / "state.json").write_text("{")
    (three / "linked").symlink_to(lived)
    rows = json.loads(symbiont("runs", three, "--json", "-").out)
    states = {Path(row["folder"]).name: row["state"] for row in rows}
    assert "damaged" in states["run-1"]
    assert "linked" not in states
    symbiont("runs", three, "--keep", "0", "--yes")
    assert (lived / "events.jsonl").exists()


def test_a_folder_that_is_not_there_is_one_line(symbiont: Symbiont, tmp_path: Path) -> None:
    assert "no folder" in symbiont("runs", tmp_path / "nowhere").error


def test_a_run_that_deletes_files_meanwhile_is_listed(
    symbiont: Symbiont, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Path.rglob

    def late(folder: Path, pattern: str) -> Iterator[Path]:
        """The files as they are. Blobs go meanwhile, as at a checkpoint."""
        found = list(lists(folder, pattern))
        blobs = [path for path in found if path.suffix == ".safetensors"]
        blobs[0].unlink()
        yield from found
        blobs[1].unlink()

    monkeypatch.setattr(Path, "rglob", late)
    said = symbiont("runs", three)
    assert said.code == 0
    assert "3 runs" in said.out
