"""Trackio and wandb, where they are installed: the curves of a run that is killed and resumed."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from killing import COMMAND, kill_when
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded


@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_the_curve_of_a_killed_run_goes_on_and_has_no_generation_twice(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder, log = tmp_path / "run", tmp_path / "run" / "events.jsonl"
    loop = ["run.generations=400", "run.train_flops=null", "run.checkpoint_every=20"]
    words = ["run", "steady", *loop, f"run.report_to=[{tracker}]", "--out", folder]
    kill_when(lambda: log.exists() and '"generation":50,"population"' in log.read_text(), *words)
    record = json.loads((folder / "trackers.json").read_text())
    reported = record["reported"][tracker]
    again = [*COMMAND, "resume", str(folder), f"run.generations={reported + 20}"]
    said = subprocess.run(again, capture_output=True, text=True, check=True)
    assert all(line.endswith(" …") for line in said.stderr.splitlines())  # progress, no warning
    assert all(line.startswith(("gen", "com", "next", " ")) for line in said.stdout.splitlines())
    if tracker == "wandb":
        files = list(folder.glob(f"wandb/offline-run-*-{record['id']}/*.wandb"))
        assert len(files) == 2
        assert all(b"accuracy" in file.read_bytes() for file in files)
        return
    with sqlite3.connect(tmp_path / "trackio/symbiont-ecology.db") as database:
        rows = list(database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"))
    assert {name for name, *_ in rows} == {f"run-{record['id']}"}
    points = [(step, json.loads(values)["accuracy"]) for _, step, values in rows]
    logged = {e.generation: e.accuracy for e in read_events(log) if isinstance(e, GenerationEnded)}
    generations = [generation for generation, _ in points]
    assert generations == sorted(set(generations))
    assert dict(points) == pytest.approx({at: logged[at] for at in generations})
    # What was not on disk when the run was killed is missing, and nothing else.
    missing = set(logged) - set(generations)
    assert all(reported - 30 < generation <= reported for generation in missing)
