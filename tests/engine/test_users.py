"""Runs in worlds with users: one stream for all, foraging; nothing lost, nothing by name."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logs import by_server
from runs import resume, start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Archived, Born, Event, Served
from symbiont_ecology.base.types import Completions, turns
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.tasks.users import SyntheticUsers
from towns import GENERATIONS, acceptance, asked, config, lived, world_of
from toy import Crash, ToyHost, toy_prices

CONTROLS = ("single", "per_user", "told", "nearest", "neutral")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> tuple[EcologyState, list[Event]]:
    return lived(tmp_path_factory.mktemp("town") / "run", config())


@pytest.mark.parametrize("strategy", CONTROLS)
def test_every_strategy_is_asked_the_same(
    strategy: str, tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    _, events = lived(tmp_path / "run", config(strategy))
    assert asked(events) == asked(town[1])


def test_examples_are_the_users_own_and_were_accepted(
    tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    plan = config("in_context").model_copy(update={"learning_rule": "none"})
    state, events = lived(tmp_path / "run", plan)
    assert asked(events) == asked(town[1])
    shown = 0
    for user in state.users.values():
        for place, answer in enumerate(user.answers):
            *examples, _ = turns(answer.prompt)
            before = [one for one in user.answers[:place] if one.is_accepted][-3:]
            if len(before) == 3:
                own = [(turns(one.prompt)[-1], f"{one.reply}\n") for one in before]
                assert examples == [part for both in own for part in both]
                shown += 1
    assert shown > 50


def test_users_that_want_the_same_find_each_other(town: tuple[EcologyState, list[Event]]) -> None:
    state, events = town
    servers = {name: user.chosen for name, user in state.users.items()}
    kinds = by_server(servers, world_of(config()))
    assert sorted(map(tuple, kinds)) == [(0,), (1,), (2,)]
    assert acceptance(events, GENERATIONS // 2) > 0.8


def test_a_user_that_changed_finds_another_server(tmp_path: Path) -> None:
    plan = config(drift_at=20, length=45)
    state, events = lived(tmp_path / "run", plan)
    world, by_server = world_of(plan), defaultdict(set)
    for name, kind in zip(world.names, world.kinds(44), strict=True):
        by_server[state.users[name].chosen].add(int(kind))
    assert all(len(kinds) == 1 for kinds in by_server.values())
    assert acceptance(events, 35) > 0.75


@pytest.mark.parametrize("stop", [2, 11])
def test_a_run_with_users_resumes_exactly(
    stop: int, tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    left = iter(range(stop, 0, -1))
    start(config(), tmp_path / "run", host=ToyHost(), should_stop=lambda: next(left) == 1)
    resume(tmp_path / "run", host=ToyHost())
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == town[1]
    assert checkpoint.load_state(tmp_path / "run") == town[0]


def test_a_run_with_users_that_crashes_resumes_exactly(
    tmp_path: Path, town: tuple[EcologyState, list[Event]]
) -> None:
    with pytest.raises(Crash):
        start(config(), tmp_path / "run", host=ToyHost(crash_at=20))
    resume(tmp_path / "run", host=ToyHost())
    assert list(read_events(tmp_path / "run" / "events.jsonl")) == town[1]


def test_nothing_depends_on_what_a_user_is_called(
    tmp_path: Path, town: tuple[EcologyState, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = world_of(config()).names
    order = np.random.default_rng(5).permutation(len(names))
    new = tuple(names[place] for place in order)
    monkeypatch.setattr(SyntheticUsers, "names", property(lambda world: new))
    _, events = lived(tmp_path / "run", config())
    renamed = dict(zip(names, new, strict=True))
    for before, after in zip(town[1], events, strict=True):
        was = vars(before).copy()
        if isinstance(before, Acted):
            was["user"] = renamed.get(before.user, "")
        if isinstance(before, Archived):
            was["cell"] = renamed[before.cell]
        if isinstance(before, Served):
            was["servers"] = {renamed[name]: server for name, server in before.servers.items()}
        assert was == vars(after)


def test_who_remembers_something_becomes_dormant_and_wakes_up(tmp_path: Path) -> None:
    poor = toy_prices(ticket=0, rent=250_000, lowest=6000, base=6000, highest=6000, dowry=15_000)
    regimes = {"apart": True, "regimes": (0, 1, 0, 1), "regime": 20}
    plan = config(count=4, kinds=3, questions=8, length=60, **regimes)
    plan = plan.model_copy(update={"economy": poor})
    state, events = lived(tmp_path / "run", plan)
    woken = [event for event in events if isinstance(event, Born) and event.operator == "awakened"]
    assert woken
    born = {event.id: event for event in events if isinstance(event, Born)}
    assert all(event.parents[0] in born for event in woken)
    assert not state.dormant.keys() & state.population.keys()
    assert sum(state.ledger.balances.values()) + state.ledger.world == 0
    left = iter(range(43, 0, -1))
    start(plan, tmp_path / "again", host=ToyHost(), should_stop=lambda: next(left) == 1)
    resume(tmp_path / "again", host=ToyHost())
    assert list(read_events(tmp_path / "again" / "events.jsonl")) == events
    assert checkpoint.load_state(tmp_path / "again") == state


class BlankHost(ToyHost):
    """Has no log-probabilities that are numbers, as a host of half precision that overflows."""

    def rollout(self, *arguments: Any, **named: Any) -> Completions:
        """As the toy."""
        made = super().rollout(*arguments, **named)
        return replace(made, log_probabilities=np.full_like(made.log_probabilities, np.nan))


def test_a_checkpoint_can_be_read_though_log_probabilities_are_not_finite(tmp_path: Path) -> None:
    written = start(config(length=4), tmp_path, host=BlankHost()).state
    assert checkpoint.load_state(tmp_path).users == written.users
    assert written.users
