"""The one contract of all strategies: exact resume, conserved energy, one meter, no access to the
host, no trace of asking and telling; a new one is tested by itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import resume, start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Event, GenerationEnded, Learned
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology import HOST
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.ecology.strategies.mechanisms import mechanisms
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.runtime import GenerationContext
from toy import Crash, ToyHost, toy_config, toy_ecology, toy_runtime

SETTINGS: dict[str, dict[str, Any]] = {
    "hyper": {"ranks": [1, 2], "targets": [0], "train_size": 16},
    "es": {"looks": 2},
}
"""What a strategy needs in a world as small as the toy's, or shows more of its life with."""
RULES = {"hyper": "supervised"}
"""The learning rule that a strategy needs."""
LIVES: dict[str, Any] = {
    name: {"kind": name, **SETTINGS.get(name, {})} for name in strategies.names()
} | {
    f"ecology, {name} alone": toy_ecology(
        mechanisms={one: one == name for one in mechanisms.names()}, founders=3
    )
    for name in mechanisms.names()
}
LIVES["genetic with phrases"] = {"kind": "genetic", "phrases": ["", "Now. "], "rephrase": 0.5}
every_life = pytest.mark.parametrize("strategy", LIVES.values(), ids=LIVES)
BY_CHANCE = ("neutral", "ecology")
"""Strategies in which nothing that is known before a run says how many will live."""


def config_of(strategy: Any, **changes: Any) -> RunConfig:
    """With the learning rule that the strategy needs."""
    if (rule := RULES.get(strategy["kind"])) is not None:
        changes["learning_rule"] = rule
    return toy_config(strategy=strategy, **changes)


def lasting(folder: Path) -> tuple[bytes, ...]:
    """What must be equal after a run, byte for byte."""
    return tuple((folder / name).read_bytes() for name in ("state.json", "events.jsonl"))


def events_of(folder: Path) -> list[Event]:
    return list(read_events(folder / "events.jsonl"))


@every_life
def test_a_strategy_that_is_killed_after_any_generation_resumes_exactly(
    strategy: Any, tmp_path: Path
) -> None:
    """Checkpoints are rarer than generations, so what was lived since the last one is lived
    again."""
    config, whole = config_of(strategy, generations=5, checkpoint_every=3), ToyHost()
    start(config, tmp_path / "whole", host=whole)
    expected = lasting(tmp_path / "whole")
    calls = len(whole.rolled) + len(whole.learned) + len(whole.scored)
    for call in range(1, calls):
        folder = tmp_path / f"killed-{call}"
        with pytest.raises(Crash):
            start(config, folder, host=ToyHost(crash_at=call))
        assert resume(folder, host=ToyHost()).is_complete
        assert lasting(folder) == expected, call


@every_life
def test_a_strategy_is_metered_by_the_engine_alone(strategy: Any, tmp_path: Path) -> None:
    """Every FLOP of an answer and of a lesson is in the log, and their sum is what was spent. No
    energy is lost, and no more are asked than an estimate goes by."""
    config = config_of(strategy, generations=9)
    state = start(config, tmp_path / "run", host=ToyHost()).state
    assert state.ledger.total == 0
    assert set(state.ledger.balances) == set(state.population)
    events, built = events_of(tmp_path / "run"), strategies.build(strategy)
    logged = sum(event.flops for event in events if isinstance(event, Acted | Learned))
    *_, last = (event for event in events if isinstance(event, GenerationEnded))
    assert last.train_flops == state.spent.flops
    if "sketches" in built.wants:  # passes that no event stands for
        assert 0 < logged <= state.spent.flops
    else:
        assert logged == state.spent.flops
    rows = Counter[int]()
    for event in events:
        if isinstance(event, Acted) and event.purpose == "practice":
            rows[event.generation] += len(event.verdicts) if event.samples else len(event.items)
    most = max(rows.values())
    assert most <= built.max_rows(mixture(config)) <= 2 * most


@every_life
def test_a_strategy_asks_and_tells_without_a_trace(strategy: Any, tmp_path: Path) -> None:
    config = config_of(strategy, generations=4)
    start(config, tmp_path / "run", host=ToyHost())
    state, world = checkpoint.load_state(tmp_path / "run"), toy_runtime(tmp_path / "run", config)
    before, draw = checkpoint.load_state(tmp_path / "run"), Draw(state.seed, state.generation)
    context = GenerationContext(**vars(world), state=state, draw=draw).strategy_context
    asked = list(world.strategy.ask(context))
    assert asked == list(world.strategy.ask(context))
    assert asked
    for trial in asked:
        assert trial.organelle_id == HOST or trial.organelle_id in state.population
        assert {item.cell for item in trial.items} == {trial.cell}
        assert trial.cell in world.tasks.cells
    keys = [
        (trial.organelle_id, trial.cell, trial.items[0].user, trial.perturbation)
        for trial in asked
        if trial.purpose == "practice"
    ]
    assert len(set(keys)) == len(keys)  # else two trials would share their draws
    told = list(world.strategy.tell(context))
    assert told == list(world.strategy.tell(context))
    assert state == before


@every_life
def test_a_strategy_goes_on_when_everybody_is_gone(strategy: Any, tmp_path: Path) -> None:
    start(config_of(strategy, generations=2), tmp_path / "run", host=ToyHost())
    config, state = config_of(strategy), checkpoint.load_state(tmp_path / "run")
    world = toy_runtime(tmp_path / "run", config)
    state = replace(state, population={}, posteriors={})
    context = GenerationContext(**vars(world), state=state, draw=Draw(0, 9)).strategy_context
    practice = [t for t in world.strategy.ask(context) if t.purpose == "practice"]
    assert practice == []
    world.strategy.tell(context)


def test_frozen_founders_differ_from_the_host_and_stay_as_they_were_born(tmp_path: Path) -> None:
    config = toy_config(generations=6, strategy="frozen")  # whatever rule the config names
    start(config, tmp_path / "run", host=ToyHost())
    events = list(read_events(tmp_path / "run/events.jsonl"))
    born = {event.id: event.weights for event in events if isinstance(event, Born)}
    state, world = checkpoint.load_state(tmp_path / "run"), toy_runtime(tmp_path / "run", config)
    assert len(set(born.values())) == len(born) == 8
    for organelle in state.population.values():
        assert organelle.genome.weights == born[organelle.id]
        assert world.store.weights(organelle.genome.weights).delta("policy").any()
        assert world.store.optimizer_state(organelle.optimizer_state).step == 0
    assert not [event for event in events if isinstance(event, Learned)]
