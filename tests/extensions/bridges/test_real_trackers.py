"""Trackio and wandb, where they are installed: the curves of a run that is killed and resumed, read
from their files."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from killing import COMMAND, kill_when
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded

Point = tuple[int, float]
"""A generation and its accuracy."""


def points_of_trackio(folder: Path) -> list[Point]:
    """What the database holds of all runs."""
    with sqlite3.connect(folder.parent / "trackio/symbiont-ecology.db") as database:
        rows = list(database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"))
    known = json.loads((folder / "trackers.json").read_text())
    assert {name for name, *_ in rows} == {f"run-{known['id']}"}
    return [(step, json.loads(values)["accuracy"]) for _, step, values in rows]


def points_of_wandb(folder: Path) -> list[Point]:
    """What the offline files hold, one sitting after the other."""
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    points, runs = list[Point](), list[str]()
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for body in bodies(path.read_bytes()):
            record = records.Record.FromString(body)
            if record.WhichOneof("record_type") == "run":
                runs.append(record.run.run_id)
            elif record.WhichOneof("record_type") == "history":
                values = {
                    "/".join(i.nested_key) or i.key: i.value_json for i in record.history.item
                }
                points.append((int(values["_step"]), float(values["accuracy"])))
    assert runs == 2 * [json.loads((folder / "trackers.json").read_text())["id"]]
    return points


def bodies(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log behind seven bytes of wandb's own: blocks of 32 KiB, in which a
    record is whole (1) or in parts (first 2, middle 3, last 4)."""
    place, body = 7, b""
    while place + 7 <= len(data):
        left = 2**15 - place % 2**15
        if left < 7:
            place += left
            continue
        length, part = struct.unpack_from("<HB", data, place + 4)
        if part == 0:  # not written
            return
        body = b"" if part in (1, 2) else body
        body += data[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):
            yield body


@pytest.mark.parametrize(
    ("tracker", "points_of"), [("trackio", points_of_trackio), ("wandb", points_of_wandb)]
)
def test_the_curve_of_a_killed_run_goes_on_and_has_no_generation_twice(
    tracker: str,
    points_of: Callable[[Path], list[Point]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder, log = tmp_path / "run", tmp_path / "run" / "events.jsonl"
    loop = ["run.generations=400", "run.train_flops=null", "run.checkpoint_every=20"]
    words = ["run", "steady", *loop, f"run.report_to=[{tracker}]", "--out", folder]
    kill_when(lambda: log.exists() and '"generation":50,"population"' in log.read_text(), *words)
    reported = json.loads((folder / "trackers.json").read_text())["reported"][tracker]
    end = reported + 20
    again = [*COMMAND, "resume", str(folder), f"run.generations={end}"]
    said = subprocess.run(again, capture_output=True, text=True, check=True)
    assert all(line.endswith(" …") for line in said.stderr.splitlines())  # progress, no warning
    assert all(line.startswith(("gen", "com", "next", " ")) for line in said.stdout.splitlines())
    points, lived = points_of(folder), list(read_events(log))
    logged = {e.generation: e.accuracy for e in lived if isinstance(e, GenerationEnded)}
    generations = [generation for generation, _ in points]
    assert generations == sorted(set(generations))
    assert dict(points) == pytest.approx({at: logged[at] for at in generations})
    # What was not on disk when the run was killed is missing, and nothing else.
    missing = set(logged) - set(generations)
    assert all(reported - 30 < generation <= reported for generation in missing)
