"""What a run or a host would take is said before it is begun."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from said import Symbiont
from symbiont_ecology import Run, load_config
from symbiont_ecology.engine.build import build_host
from symbiont_ecology.engine.forecast import forecast, run_load
from symbiont_ecology.host.locating import EMBEDDED_FOLDER

CONFIG = EMBEDDED_FOLDER / "config.json"
DRY = "--dry-run"


def test_a_dry_run_tells_memory_time_and_money_and_writes_nothing(
    symbiont: Symbiont, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = symbiont("run", "steady", *small, "--dry-run", "--price-per-hour", "1.5")
    assert said.code == 0
    assert re.search(r"memory +host [\d.]+ MB in float32, slots", said.out)
    assert re.search(r"population +16 adapters of rank 1 [\d.]+ MB, optimizer [\d.]+ MB", said.out)
    assert re.search(r"answers +\d+ rows of at most \d+ tokens, \d+ at a time", said.out)
    assert re.search(r"lessons +\d+ tokens at a time, activations", said.out)
    assert re.search(r"in all +[\d.]+ [MG]B of [\d.]+ GB of RAM.*: fits", said.out)
    assert re.search(r"time +[\d.e+]+ rollouts and [\d.e+]+ lessons a second here", said.out)
    assert re.search(r"money +[\d.e-]+ at 1.5 per hour, for [\d.e-]+ hours", said.out)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_names_the_knob_and_weights_are_not_needed(
    symbiont: Symbiont, tmp_path: Path
) -> None:
    shutil.copy(CONFIG, tmp_path)
    large = ["host.dtype=bfloat16", "host.slots=65536", "host.rank=256", "strategy.ranks=256"]
    said = symbiont("run", "steady", f"host.model={tmp_path}", *large, "--dry-run")
    assert re.search(r"in all .*: does not fit: try host\.slots=\d+", said.out)
    assert re.search(r"time +not measured: the host would be downloaded first", said.out)


def test_a_price_wants_a_dry_run(symbiont: Symbiont) -> None:
    assert "--dry-run" in symbiont("run", "steady", "--price-per-hour", "1").error
    said = symbiont("run", "steady", "--dry-run", "--price-per-hour", "-1")
    assert "expected 0 or more" in said.error


def test_a_budget_ends_the_forecast(small: list[str]) -> None:
    config = load_config("steady", [*small, "run.generations=1000000"])
    host = build_host(config)
    seen = forecast(config, host)
    assert seen.run < 1e6 * seen.generation, "run.train_flops ends it before"
    assert seen.generation == pytest.approx(4 * (seen.pace.rollout + seen.pace.lesson))
    short = load_config("steady", [*small, "run.train_seconds=0.5"])
    assert forecast(short, host).run <= 0.5


@pytest.mark.parametrize(
    "budget", ["run.train_rollouts=600", "run.train_tokens=10000", "run.train_flops=6e10"]
)
@pytest.mark.parametrize(
    "lessons",
    [("learning_rule=policy_gradient",), ("learning_rule=supervised", "strategy.samples=0")],
    ids=["rollouts", "reads"],
)
def test_a_run_lives_about_as_long_as_is_forecast(
    budget: str, lessons: tuple[str, ...], tmp_path: Path
) -> None:
    words = ["run.generations=1000", "run.train_flops=null", budget, *lessons]
    config = load_config("steady_single", words)
    seen = forecast(config, build_host(config))
    run = Run.start(config, folder=tmp_path / "run").finish()
    assert seen.run / seen.generation == pytest.approx(run.state.generation, rel=0.25)


def test_who_reads_only_is_not_charged_for_rollouts(small: list[str]) -> None:
    read = ["learning_rule=supervised", "strategy={kind: single, samples: 0, questions: 2}"]
    config = load_config("steady", [*small, *read])
    seen = forecast(config, build_host(config))
    assert seen.generation == pytest.approx(4 * seen.pace.lesson)


def test_a_run_asks_its_host_for_its_own_rows(small: list[str]) -> None:
    config = load_config("steady", [*small, "strategy.samples=2"])
    load, host = run_load(config, None), build_host(config)
    known = run_load(config, host)
    assert load.organelles == known.organelles == 16
    assert load.rows == known.rows == 8
    assert known.prompt_tokens <= 60
    assert known.learns
    silent = load_config("steady", [*small, "learning_rule=none"])
    assert not run_load(silent, None).learns
    assert forecast(silent, host).pace.lesson == 0.0


@pytest.mark.parametrize(
    ("preset", "changes", "living", "rollouts"),
    [
        ("es-countdown", (), 1, 32 * 16),
        ("steady", ("strategy={kind: independent, samples: 4}",), 9, 4 * 18),
        ("habitats/city", ("strategy=told",), 6, 24),
        ("habitats/city", ("strategy=per_habitat",), 200, 24),
        ("habitats/city", ("strategy={kind: genetic, refine: 2, samples: 3}",), 6, 3 * 24),
    ],
)
def test_a_forecast_goes_by_what_a_strategy_does(
    preset: str, changes: tuple[str, ...], living: int, rollouts: int
) -> None:
    config = load_config(preset, changes)
    load = run_load(config, None)
    assert (load.organelles, load.rows) == (living, rollouts)


def test_a_dry_run_tells_what_is_read_without_a_rollout(symbiont: Symbiont) -> None:
    read = ("learning_rule=supervised", "strategy={kind: single, samples: 0, questions: 2}")
    assert "at most 36 examples read per generation" in symbiont("run", "steady", *read, DRY).out
    said = symbiont("evolve", "loralab", DRY).out
    assert "at most 288 rollouts or 24 examples read per generation" in said
