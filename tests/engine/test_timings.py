"""How long generations took stands beside the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symbiont_ecology.run.start import start
from toy import ToyHost, toy_config

PHASES = ["retire", "ask", "act", "learn", "remember", "settle", "tell", "save"]


def test_phases_of_a_generation_are_timed_and_add_up(tmp_path: Path) -> None:
    start(toy_config(generations=4), tmp_path / "run", host=ToyHost())
    lines = (tmp_path / "run" / "timings.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["generation"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert list(row["phases"]) == PHASES
        assert sum(row["phases"].values()) == pytest.approx(row["seconds"], abs=0.002)
