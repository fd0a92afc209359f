"""Catastrophes and seasons: they come when the config says so, to every strategy alike."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lives import adapter, founded
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Event, GenerationEnded, Retired, Settled
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.decisions import retire_by_catastrophe
from symbiont_ecology.ecology.prices import Climate
from symbiont_ecology.run.start import start
from toy import ToyHost, toy_config, toy_ecology

SMALL = {"questions": 2, "samples": 2}
STRATEGIES: tuple[dict[str, Any], ...] = (
    toy_ecology(),
    {"kind": "single", **SMALL},
    {"kind": "independent", **SMALL},
    {"kind": "frozen", **SMALL},
)


def lived(
    folder: Path, climate: Climate, strategy: dict[str, Any], generations: int = 12
) -> list[Event]:
    start(
        toy_config(7, generations, climate=climate, strategy=strategy, checkpoint_every=50),
        folder,
        host=ToyHost(),
    )
    return list(read_events(folder / "events.jsonl"))


def dead(events: list[Event], generation: int) -> list[str]:
    """Who died of the catastrophe in a generation."""
    return [
        one.id
        for one in events
        if isinstance(one, Retired) and one.cause == "catastrophe" and one.generation == generation
    ]


@pytest.mark.parametrize(
    ("toll", "living", "killed"), [(0.14, 50, 7), (0.55, 20, 11), (1e-9, 50, 1), (1.0, 3, 3)]
)
def test_a_toll_is_the_share_that_is_written_rounded_up(
    toll: float, living: int, killed: int, tmp_path: Path
) -> None:
    state, _ = founded(tmp_path, [adapter(1)] * living)
    climate = Climate(catastrophes=(0,), toll=toll)
    assert len(retire_by_catastrophe(state, climate, Draw(0, 0))) == killed


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: str(one["kind"]))
def test_a_catastrophe_takes_its_toll_of_every_strategy(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    events = lived(tmp_path, Climate(catastrophes=(5, 9), toll=0.5), strategy)
    for generation in range(12):
        alive = sum(isinstance(one, Born) and one.generation < generation for one in events)
        alive -= sum(isinstance(one, Retired) and one.generation < generation for one in events)
        others = [one for one in events if isinstance(one, Retired) and one.cause == "bankrupt"]
        alive -= sum(one.generation == generation for one in others)
        hit = generation in (5, 9)
        assert len(dead(events, generation)) == (math.ceil(alive / 2) if hit else 0)


@pytest.mark.parametrize("strategy", STRATEGIES[1:3], ids=lambda one: str(one["kind"]))
def test_controls_that_lose_everyone_are_founded_anew(
    strategy: dict[str, Any], tmp_path: Path
) -> None:
    events = lived(tmp_path, Climate(catastrophes=(5,), toll=1.0), strategy)
    ends = {one.generation: one.population for one in events if isinstance(one, GenerationEnded)}
    assert ends[4] == ends[5] == ends[11] > 0


def test_nothing_is_different_before_the_first_catastrophe_or_winter(tmp_path: Path) -> None:
    calm = lived(tmp_path / "calm", Climate(), toy_ecology())
    for name, climate in (("struck", Climate(catastrophes=(8,))), ("cold", Climate(year=16))):
        other = lived(tmp_path / name, climate, toy_ecology())
        assert [e for e in calm if e.generation < 8] == [e for e in other if e.generation < 8]
        assert [e for e in calm if e.generation == 8] != [e for e in other if e.generation == 8]


def test_energy_falls_in_winter(tmp_path: Path) -> None:
    climate = Climate(year=20, winter=0.3)
    strategy = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
    events = lived(tmp_path, climate, strategy, 100)
    earned = {one.generation: one.revenue for one in events if isinstance(one, Settled)}
    energy = [one.energy_total for one in events if isinstance(one, GenerationEnded)]
    changes = np.diff(energy)
    seasons = np.array([climate.payment(generation) for generation in range(1, 100)])
    assert changes[seasons < 1].mean() < 0 < changes[seasons == 1].mean()
    assert np.mean([earned[g] for g in range(100) if climate.payment(g) < 1]) < 0.5 * np.mean(
        [earned[g] for g in range(100) if climate.payment(g) == 1]
    )


def test_no_energy_is_lost_in_catastrophes_and_winters(tmp_path: Path) -> None:
    lived(tmp_path, Climate(catastrophes=(3, 4, 8), toll=0.7, year=4, winter=0.25), toy_ecology())
    state = checkpoint.load_state(tmp_path)
    assert state.ledger.total == 0
    assert set(state.ledger.balances) == set(state.population)


def test_a_year_begins_with_summer_and_ends_with_winter() -> None:
    assert [Climate(year=4, winter=0.5).payment(g) for g in range(6)] == [1, 1, 0.5, 0.5, 1, 1]
    assert Climate().payment(3) == 1
