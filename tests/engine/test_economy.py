"""Who lives on what: debt, grace, dowries, tickets, and the exchange rate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from items import FAMILIES
from replay import replayed
from runs import resume, start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Event, GenerationEnded, Retired, Settled
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config, toy_ecology, toy_prices

small = {"questions": 2, "samples": 2}


def history(folder: Path, **changes: Any) -> tuple[list[Event], Prices]:
    """The events of a toy run, and its prices."""
    config = toy_config(**changes)
    start(config, folder, host=ToyHost())
    return list(read_events(folder / "events.jsonl")), config.economy


def test_who_is_in_debt_may_try_one_question_and_earn_its_way_back(tmp_path: Path) -> None:
    economy = toy_prices(dowry=6000, base=900, slope=200, grace=4)
    asked, saved = Counter[tuple[int, int, str]](), 0
    for seed in range(3):
        balances: dict[str, int] = {}
        events, _ = history(tmp_path / str(seed), seed=seed, generations=40, economy=economy)
        for event in events:
            match event:
                case Born():
                    balances[event.id] = 1  # a newborn owns its dowry
                case Settled():
                    saved += balances[event.id] < 0 <= event.balance
                    balances[event.id] = event.balance
                case Acted() if event.purpose == "practice" and balances[event.id] < 0:
                    asked[seed, event.generation, event.id] += len(event.items)
    assert set(asked.values()) == {1}
    assert saved > 1


def test_the_bankrupt_die_after_grace_and_not_before(tmp_path: Path) -> None:
    economy = toy_prices(dowry=6000, base=900, slope=200, grace=2)
    events, _ = history(tmp_path / "run", generations=25, economy=economy)
    overdrawn: dict[str, int] = {}
    deaths = 0
    for event in events:
        match event:
            case Settled():
                overdrawn[event.id] = overdrawn.get(event.id, 0) + 1 if event.balance < 0 else 0
                assert overdrawn[event.id] <= economy.grace + 1, event
            case Retired(cause="bankrupt"):
                assert overdrawn[event.id] == economy.grace + 1
                deaths += 1
    assert deaths > 0


@pytest.mark.parametrize("breed_at", [20_000, 0])
def test_births_pay_a_dowry_that_the_parent_owned(breed_at: int, tmp_path: Path) -> None:
    strategy = toy_ecology(breed_at=breed_at)
    events, economy = history(tmp_path / "run", generations=25, strategy=strategy)
    balances, births = {}, 0
    for event in events:
        if isinstance(event, Settled):
            balances[event.id] = event.balance
        elif isinstance(event, Born) and event.parents:
            births += 1
            (parent,) = event.parents
            assert balances[parent] >= max(breed_at, economy.dowry)
            assert event.traits["learning_rate"] > 0
    assert births > 0
    replayed(events, economy)


def test_the_ecology_never_outgrows_its_capacity_nor_dies_out(tmp_path: Path) -> None:
    events, _ = history(tmp_path / "run", generations=60)
    sizes = [event.population for event in events if isinstance(event, GenerationEnded)]
    assert max(sizes) == 7
    assert min(sizes) >= 4  # refounded from the archive


def test_single_never_dies_however_poor(tmp_path: Path) -> None:
    economy = Prices(dowry=0, base=0, slope=0, lowest=0, highest=0, grace=0)
    config = toy_config(generations=8, economy=economy, strategy={"kind": "single", **small})
    state = start(config, tmp_path / "run", host=ToyHost()).state
    assert list(state.population) == ["o1"]
    assert state.ledger.balance("o1") < 0
    events = read_events(tmp_path / "run/events.jsonl")
    assert not any(isinstance(event, Retired) for event in events)


def test_a_poor_frozen_population_dies_and_others_are_founded(tmp_path: Path) -> None:
    """Or a run with nobody in it would spend nothing, and never get to the end of its FLOPs."""
    economy = Prices(dowry=0, base=0, slope=0, lowest=0, highest=0, grace=0)
    config = toy_config(train_flops=2e7, economy=economy, strategy={"kind": "frozen", **small})
    finished = start(config, tmp_path / "run", host=ToyHost())
    assert finished.is_complete
    events = list(read_events(tmp_path / "run/events.jsonl"))
    gone = {event.id for event in events if isinstance(event, Retired)}
    assert len(gone) >= 16
    assert not gone & set(finished.state.population)
    assert finished.state.ledger.total == 0
    assert resume(tmp_path / "run", host=ToyHost()).is_complete


def test_the_exchange_rate_makes_a_mean_rollout_cost_its_price(tmp_path: Path) -> None:
    trained = [name for name in FAMILIES if tasks[name].role == "trained"]
    strategy = {"kind": "single", "questions": 1, "samples": 2}
    events, economy = history(
        tmp_path / "run", generations=5, learning_rule="none", strategy=strategy, families=trained
    )
    acted = [event for event in events if isinstance(event, Acted) and event.id != HOST]
    rollouts = sum(len(event.verdicts) for event in acted)
    paid = sum(event.cost for event in events if isinstance(event, Settled))
    # An adapter adds a little to the host.
    assert paid / rollouts == pytest.approx(economy.rollout, rel=0.15)
