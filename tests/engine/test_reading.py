"""A reward that is about reference answers: they are read, and nobody replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import resume, start
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import (
    Acted,
    Archived,
    Ascended,
    Born,
    Event,
    GenerationEnded,
    Settled,
)
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.transcripts import read_transcripts
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.evaluate.measure import LoadedRun
from symbiont_ecology.extensions.methods.noise import Noise
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config

ES = {"kind": "es", "population": 24, "questions": 6, "noise": 0.3, "step": 2.0}


def plan(strategy: dict[str, Any] | None = None, generations: int = 6, **changes: Any) -> RunConfig:
    parts = {"learning_rule": "none", "reward": "log_probability", **changes}
    return toy_config(generations=generations, strategy=strategy or ES, **parts)


def lived(folder: Path, config: RunConfig, host: ToyHost | None = None) -> list[Event]:
    start(config, folder, host=host or ToyHost())
    return list(read_events(folder / "events.jsonl"))


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def practice(events: list[Event]) -> list[Acted]:
    return [event for event in of(events, Acted) if event.purpose == "practice"]


def test_nobody_replies_and_everyone_reads_in_one_call(tmp_path: Path) -> None:
    host = ToyHost(slots=24)
    lived(tmp_path / "run", plan(generations=3), host)
    assert len(host.rolled) == 1  # the founding
    assert host.scored == [24 * 18] * 3


def test_the_reward_is_the_mean_log_probability_under_the_noise_of_a_member(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", plan(generations=1))
    config, host = plan(), ToyHost()
    centre = BlobStore(tmp_path / "run" / "blobs").weights(of(events, Born)[0].weights)
    seed = Draw(config.seed, 0).key("member", 3)
    items = {
        identity: tasks.build(identity.split("/")[0]).item(identity.split("/", 3)[3], "short")
        for act in practice(events)
        for identity in act.items
    }
    for place, sign in ((6, 1), (7, -1)):
        host.place(0, Noise(seed, sign * 0.3).of(centre, host.norms))
        worth = []
        for item in items.values():
            (ids,) = host.encode_answers([item.answer])
            (values,) = host.score([item.prompt], [ids], [0])
            worth.append(float(np.mean(values)))
        (step,) = of(events, Ascended)
        assert step.rewards[place] == pytest.approx(np.mean(worth), abs=1e-6)


def test_a_read_answer_is_neither_a_success_nor_a_failure(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", plan())
    state = load_state(tmp_path / "run")
    assert practice(events)
    assert all(act.verdicts == () for act in practice(events))
    assert all(ended.accuracy is None for ended in of(events, GenerationEnded))
    assert all(account.revenue == 0 for account in of(events, Settled))
    assert not of(events, Archived)
    assert state.posteriors == {}
    assert state.drift_detectors == {}
    kept = read_transcripts(tmp_path / "run" / "transcripts.jsonl")
    assert not [one for one in kept if one.purpose == "practice"]


def test_reading_costs_what_it_takes_and_counts_once(tmp_path: Path) -> None:
    host = ToyHost()
    events = lived(tmp_path / "run", plan(generations=2), host)
    ends = of(events, GenerationEnded)
    flops = sum(act.flops for act in practice(events) if act.generation == 1)
    assert ends[1].train_flops - ends[0].train_flops == flops > 0
    act = practice(events)[0]
    parameters, expected = host.layout.size(4), 0
    for identity in act.items:
        family, _, _, question = identity.split("/", 3)
        item = tasks.build(family).item(question, "short")
        read, written = len(host.encode([item.prompt])[0]), len(item.answer) + 1
        expected += host.shape.scoring_flops(parameters, read, written)
    assert act.flops == expected


def test_reference_answers_become_more_likely_and_such_a_run_can_be_evaluated(
    tmp_path: Path,
) -> None:
    steps = of(lived(tmp_path / "run", plan(generations=40)), Ascended)
    rewards = [float(np.mean(step.rewards)) for step in steps]
    assert all(reward < 0 for step in steps for reward in step.rewards)
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1
    run, host = LoadedRun.of_run(tmp_path / "run"), ToyHost()
    items = run.items(20)
    bare = run.evaluate(items, host, "host").accuracy().estimate
    for routing in ("single", "learned"):
        evaluation = run.evaluate(items, host, routing)
        assert set(evaluation.choices) == {"o1"}
        assert evaluation.accuracy().estimate > bare


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "single"}, r"reward: .*log_probability.* and strategy=es or"),
        ({"strategy": "genetic", "learning_rule": "policy_gradient"}, r"set learning_rule=none"),
    ],
)
def test_what_needs_replies_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    config = toy_config(**{"learning_rule": "none", "reward": "log_probability", **changes})
    with pytest.raises(ConfigError, match=message) as error:
        check(config)
    assert "\n" not in str(error.value)


def test_a_run_that_was_stopped_reads_on_with_the_same_result(tmp_path: Path) -> None:
    config = plan()
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    start(config, whole, host=ToyHost())
    start(config, stopped, host=ToyHost(), should_stop=lambda: True)
    while not resume(stopped, host=ToyHost(), should_stop=lambda: True).is_complete:
        pass
    for name in ("state.json", "events.jsonl"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()
