"""Slots are a cache: neither their number, nor the order of trials, nor neighbours change what
happens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked import values as rollout_values
from runs import start
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, BatchShrunk, Event, GenerationEnded
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.ecology import HOST, Assignment, EcologyState, Outcome
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.run.act import act, waves
from symbiont_ecology.run.runtime import GenerationContext
from toy import ToyHost, toy_config, toy_runtime

ids = st.sets(st.integers(1, 30).map(lambda number: f"o{number}"), max_size=12)


@given(organelles=ids, slots=st.integers(1, 6), is_host_asked=st.booleans())
def test_waves_serve_everyone_once_within_the_slots(
    organelles: set[str], slots: int, is_host_asked: bool
) -> None:
    everyone = organelles | ({HOST} if is_host_asked else set())
    found = list(waves(everyone, slots))
    assert sorted(organelle_id for wave in found for organelle_id in wave) == sorted(everyone)
    for wave in found:
        taken = [slot for organelle_id, slot in wave.items() if organelle_id != HOST]
        assert taken == list(range(len(taken)))
        assert len(taken) <= slots
        assert wave.get(HOST, HOST_SLOT) == HOST_SLOT
    assert len(found) <= max(-(-len(organelles) // slots), int(is_host_asked))


BUDGETS = (None, 40_000_000, 78_620_000)
"""FLOPs: where they bind, questions and lessons are left out."""


@pytest.mark.parametrize("flops", BUDGETS)
@pytest.mark.parametrize("slots", [1, 3])
def test_few_slots_and_many_waves_give_the_same_history(
    slots: int, flops: int | None, tmp_path: Path
) -> None:
    config = toy_config(generations=12)
    config = config.model_copy(update={"run": config.run.model_copy(update={"train_flops": flops})})
    start(config, tmp_path / "many", host=ToyHost(slots=32))
    start(config, tmp_path / "few", host=ToyHost(slots=slots))
    few, many = (list(read_events(tmp_path / name / "events.jsonl")) for name in ("few", "many"))

    def without_calls(event: Event) -> Event:
        return replace(event, calls=0) if isinstance(event, GenerationEnded) else event

    assert list(map(without_calls, few)) == list(map(without_calls, many))
    states = [checkpoint.load_state(tmp_path / name) for name in ("few", "many")]
    for state in states:
        state.spent = replace(state.spent, calls=0)
    assert states[0] == states[1]
    acting: dict[int, set[str]] = {}
    for event in few:
        if isinstance(event, Acted) and event.id != HOST:
            acting.setdefault(event.generation, set()).add(event.id)
    for event in few:
        if isinstance(event, GenerationEnded):
            assert event.calls <= 2 * max(-(-len(acting.get(event.generation, ())) // slots), 1)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EcologyState]:
    folder = tmp_path_factory.mktemp("lived") / "run"
    start(toy_config(generations=6), folder, host=ToyHost())
    return folder, checkpoint.load_state(folder)


def outcomes_of(
    lived: tuple[Path, EcologyState], trials: list[Assignment], slots: int = 32
) -> list[Outcome]:
    folder, _ = lived
    world, state = toy_runtime(folder, host=ToyHost(slots=slots)), checkpoint.load_state(folder)
    return act(trials, GenerationContext(**vars(world), state=state, draw=Draw(4, 2)))


def contents(outcome: Outcome) -> tuple[Assignment, list[tuple[object, ...]]]:
    """All that there is to compare in an outcome."""
    return outcome.assignment, rollout_values(list(outcome.rollouts))


def asked(lived: tuple[Path, EcologyState]) -> list[Assignment]:
    folder, state = lived
    turn = GenerationContext(**vars(toy_runtime(folder)), state=state, draw=Draw(4, 2))
    return list(turn.strategy.ask(turn.strategy_context))


@given(seed=st.integers(0, 2**16), slots=st.integers(1, 8))
def test_an_outcome_depends_on_its_own_trial_alone(
    lived: tuple[Path, EcologyState], seed: int, slots: int
) -> None:
    trials, generator = asked(lived), np.random.default_rng(seed)
    expected = dict(zip(trials, map(contents, outcomes_of(lived, trials)), strict=True))
    order = [trials[index] for index in generator.permutation(len(trials))]
    few = order[: int(generator.integers(1, len(order) + 1))]
    outcomes = outcomes_of(lived, few, slots)
    assert [contents(outcome) for outcome in outcomes] == [expected[trial] for trial in few]


def test_samples_of_one_question_are_drawn_apart(lived: tuple[Path, EcologyState]) -> None:
    (trial, *_) = asked(lived)
    trial = replace(trial, organelle_id=HOST)  # who is not sure of its answer
    many = replace(trial, items=trial.items[:1], samples=60)
    (outcome,) = outcomes_of(lived, [many])
    assert len({rollout.text for rollout in outcome.rollouts}) > 1
    twice = replace(trial, items=trial.items[:1] * 2, samples=60)
    (outcome,) = outcomes_of(lived, [twice])
    texts = [rollout.text for rollout in outcome.rollouts]
    assert texts[:60] != texts[60:]


@dataclass
class CrampedHost(ToyHost):
    """Runs out of memory in its third learning step, and gets by with half from then on."""

    def learn(self, *arguments: Any, **named: Any) -> Any:
        """As the toy, in smaller pieces."""
        if len(self.learned) == 2:
            self.memory_mb /= 2
        return super().learn(*arguments, **named)


def test_a_lack_of_memory_is_an_event_and_changes_nothing_else(tmp_path: Path) -> None:
    config = toy_config(generations=6)
    start(config, tmp_path / "roomy", host=ToyHost())
    start(config, tmp_path / "cramped", host=CrampedHost())
    roomy, cramped = (
        list(read_events(tmp_path / name / "events.jsonl")) for name in ("roomy", "cramped")
    )
    (shrunk,) = [event for event in cramped if isinstance(event, BatchShrunk)]
    assert (shrunk.generation, shrunk.memory_mb) == (2, 32.0)
    assert [event for event in cramped if event is not shrunk] == roomy
