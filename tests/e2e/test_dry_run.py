"""What a run would take is said before it is begun."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology import load_config
from symbiont_ecology.engine.build import build_host
from symbiont_ecology.engine.forecast import forecast


def test_a_dry_run_times_the_host_and_writes_nothing(
    symbiont: Symbiont, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont("run", "steady", *small, "--dry-run")
    assert said.code == 0
    assert re.search(r"memory +host \d+ MB, slots \d+ MB, a batch at most 2048 MB", said.out)
    assert re.search(r"time +[\d.]+ answers or [\d.]+ lessons a second here", said.out)
    assert list(tmp_path.iterdir()) == []


def test_a_budget_ends_the_forecast(small: list[str]) -> None:
    config = load_config("steady", [*small, "run.generations=1000000"])
    host = build_host(config)
    seen = forecast(config, host, itemsize=4)
    assert seen.host == pytest.approx(4e-6 * host.shape.parameters)
    assert seen.run is not None
    assert seen.run < 1e6 * seen.generation, "run.train_flops ends it before"
    assert seen.generation == pytest.approx(4 * (seen.rollout + seen.lesson))
    short = load_config("steady", [*small, "run.train_seconds=0.5"])
    assert (forecast(short, host, itemsize=4).run or 0) <= 0.5
