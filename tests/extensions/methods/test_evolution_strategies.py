"""Evolution strategies: a centre, and a population that is nothing but seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Ascended, Born, Event
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.methods.evolution_strategies import _worth
from symbiont_ecology.run.build import check
from toy import ToyHost, toy_config

ES = {"kind": "es", "population": 24, "questions": 6, "noise": 0.3, "step": 2.0}


def lived(folder: Path, host: ToyHost | None = None, **changes: Any) -> list[Event]:
    strategy = {**ES, **changes.pop("strategy", {})}
    config = toy_config(**{"generations": 40, **changes}, strategy=strategy, learning_rule="none")
    start(config, folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


def steps(events: list[Event]) -> list[Ascended]:
    return [event for event in events if isinstance(event, Ascended)]


@pytest.mark.parametrize(
    "strategy", [{}, {"shaping": "z_score"}, {"is_mirrored": False}, {"aging": 20.0}], ids=str
)
def test_the_mean_reward_of_the_population_rises(strategy: dict[str, Any], tmp_path: Path) -> None:
    events = lived(tmp_path / "run", strategy=strategy)
    rewards = [float(np.mean(step.rewards)) for step in steps(events)]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.25


@pytest.mark.parametrize("shaping", ["ranks", "z_score"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.3, 1.1])
def test_members_that_earn_the_same_are_worth_nothing(shaping: Any, reward: float) -> None:
    assert _worth([{"a": reward, "b": reward}] * 30, shaping) == [0.0] * 30


def test_all_members_answer_the_same_questions_in_one_call(tmp_path: Path) -> None:
    host = ToyHost(slots=24)
    events = lived(tmp_path / "run", host, generations=1)
    practice = [e for e in events if isinstance(e, Acted) and e.purpose == "practice"]
    by_cell: dict[str, set[tuple[str, ...]]] = {}
    for event in practice:
        by_cell.setdefault(event.cell, set()).add(event.items)
    assert all(len(asked) == 1 for asked in by_cell.values())
    assert len(practice) == 24 * len(by_cell)
    assert len(host.rolled) == 2  # the founding, and everyone at once


def test_more_members_than_slots_answer_in_waves_with_the_same_result(tmp_path: Path) -> None:
    wide = steps(lived(tmp_path / "wide", ToyHost(slots=24), generations=3))
    narrow = steps(lived(tmp_path / "narrow", ToyHost(slots=5), generations=3))
    assert [step.rewards for step in wide] == [step.rewards for step in narrow]
    assert [step.weights for step in wide] == [step.weights for step in narrow]


def test_nothing_of_a_member_is_kept(tmp_path: Path) -> None:
    """The store holds the centre and what its optimizer keeps, whatever the population."""
    sizes = []
    for population in (4, 64):
        folder = tmp_path / str(population)
        lived(folder, generations=2, strategy={"population": population})
        sizes.append(sum(path.stat().st_size for path in (folder / "blobs").iterdir()))
    assert sizes[0] == sizes[1]


def test_looks_ask_the_centre_and_the_host_the_same_questions_every_time(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", generations=9, strategy={"looks": 4})
    asked: dict[int, dict[bool, list[tuple[str, ...]]]] = {}
    first = next(place for place, event in enumerate(events) if isinstance(event, Born))
    for event in events[first:]:  # the host's probes before that found the population
        if isinstance(event, Acted) and event.purpose == "probe":
            of_who = asked.setdefault(event.generation, {}).setdefault(event.id == HOST, [])
            of_who.append(event.items)
    assert set(asked) == {0, 4, 8}
    looks = [items for of_who in asked.values() for items in of_who.values()]
    assert len(looks) == 6
    assert all(items == looks[0] for items in looks)


def test_at_a_look_the_host_reads_what_the_centre_answers(tmp_path: Path) -> None:
    known = [
        step.kl for step in steps(lived(tmp_path / "run", generations=9, strategy={"looks": 4}))
    ]
    assert known[0] == pytest.approx(0.0, abs=1e-6)  # the centre is the host, still
    assert [kl is not None for kl in known] == [place % 4 == 0 for place in range(9)]
    assert known[8] is not None
    assert known[8] > 0.001


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"population": 7}, r"expected pairs, so an even number, got 7: set 8"),
        ({"population": 1, "is_mirrored": False}, r"expected 2 members or more, got 1"),
        ({"shaping": "rank"}, r"shaping"),
        ({"directions": 1}, r"directions"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(strategy: dict[str, Any], message: str) -> None:
    config = toy_config(strategy={**ES, **strategy}, learning_rule="none")
    with pytest.raises(ConfigError, match=message):
        check(config)
