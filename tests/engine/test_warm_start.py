"""The warm start: a few reference answers that founders have learned before they are founded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logs import ECOLOGY, RICH
from runs import resume, start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Born, Event, GenerationEnded, WarmStarted
from symbiont_ecology.base.flops import LARGE_HIDDEN
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.ecology.users import Basis, RememberedAnswer, SketchSpace, read_vector
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import RunConfig
from symbiont_ecology.run.warm import warm_examples
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.splits import split_of
from toy import Crash, ToyHost, ToyShape, toy_config, toy_ecology

SINGLE = {"kind": "single", "questions": 3, "samples": 3, "learning_rate": 0.1}
FAMILIES = ("math.add", "string.sort")
MOST = 127 / 400  # of a number of a sketch
REPLAYING = {"kind": "expert_iteration", "skip": 0.0, "replay": 1.0}
WARM = {"warm": 3, "warm_rate": 0.1}


def warm_config(generations: int = 6, **changes: Any) -> RunConfig:
    strategy = toy_ecology(**WARM)
    return toy_config(seed=3, generations=generations, **({"strategy": strategy} | changes))


def events_of(folder: Path) -> list[Event]:
    return list(read_events(folder / "events.jsonl"))


def started(folder: Path) -> WarmStarted:
    (event,) = (event for event in events_of(folder) if isinstance(event, WarmStarted))
    return event


def trace(folder: Path) -> dict[str, bytes]:
    files = [folder / "state.json", folder / "events.jsonl", *sorted((folder / "blobs").iterdir())]
    return {path.name: path.read_bytes() for path in files}


def first_accuracy(folder: Path) -> float:
    """Of the first generation that practised."""
    ended = (event for event in events_of(folder) if isinstance(event, GenerationEnded))
    return next(ended).accuracy or 0.0


def test_every_founder_begins_with_the_warm_weights(tmp_path: Path) -> None:
    start(warm_config(), tmp_path / "run", host=ToyHost())
    warm = started(tmp_path / "run").weights
    born = [event for event in events_of(tmp_path / "run") if isinstance(event, Born)]
    founders = [event.weights for event in born if event.operator == "founder"]
    assert len(founders) >= 4
    assert set(founders) == {warm}


def test_what_was_learned_shows_in_the_first_generation(tmp_path: Path) -> None:
    start(warm_config(1), tmp_path / "warm", host=ToyHost())
    start(warm_config(1, strategy=toy_ecology()), tmp_path / "cold", host=ToyHost())
    assert first_accuracy(tmp_path / "warm") > first_accuracy(tmp_path / "cold") + 0.2


def test_examples_are_the_same_for_every_strategy_and_of_the_train_split(tmp_path: Path) -> None:
    start(warm_config(1), tmp_path / "ecology", host=ToyHost())
    start(warm_config(1, strategy=SINGLE | WARM), tmp_path / "single", host=ToyHost())
    ecology, single = started(tmp_path / "ecology"), started(tmp_path / "single")
    assert ecology == single
    assert len(set(ecology.items)) == 9
    mix = mixture(warm_config())
    items = warm_examples(mix, 3, Draw(3, -1))
    assert tuple(item.id for item in items) == ecology.items
    assert {split_of(item.family, item.question) for item in items} == {"train"}


def test_the_compute_counts_and_a_budget_sees_it(tmp_path: Path) -> None:
    start(warm_config(0), tmp_path / "warm", host=ToyHost())
    start(warm_config(0, strategy=toy_ecology()), tmp_path / "cold", host=ToyHost())
    warm, cold = load_state(tmp_path / "warm").spent, load_state(tmp_path / "cold").spent
    assert warm.flops - cold.flops == started(tmp_path / "warm").flops > 0
    assert warm.calls - cold.calls == 16  # two batches in each of eight passes
    budget = float(cold.flops + started(tmp_path / "warm").flops // 2)
    assert start(warm_config(train_flops=budget), tmp_path / "poor", host=ToyHost()).is_complete


@pytest.mark.parametrize("crash_at", [0, 7, 17])
def test_a_run_killed_in_its_warm_start_is_founded_anew_with_the_same_result(
    crash_at: int, tmp_path: Path
) -> None:
    start(warm_config(), tmp_path / "whole", host=ToyHost())
    with pytest.raises(Crash):
        start(warm_config(), tmp_path / "run", host=ToyHost(crash_at=crash_at))
    resume(tmp_path / "run", host=ToyHost())
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"strategy\.warm_rate: 0\.1 made the weights not finite"):
        start(warm_config(), tmp_path / "run", host=ToyHost(poison={5: 0}))


def in_a_world(plan: RunConfig) -> RunConfig:
    """Six users of two kinds."""
    users = UsersConfig(count=6, kinds=2, questions=6)
    return plan.model_copy(update={"tasks": plan.tasks.model_copy(update={"users": users})})


def are_open(monkeypatch: pytest.MonkeyPatch, *families: str) -> None:
    for family in families:
        monkeypatch.setattr(type(tasks.build(family)), "is_open", True)


def wide_world(per_cell: int = 12) -> RunConfig:
    strategy = {**ECOLOGY, "warm": per_cell, "warm_rate": 0.1}
    return in_a_world(toy_config(3, 8, FAMILIES, RICH, strategy=strategy, learning_rule=REPLAYING))


def wide_host() -> ToyHost:
    return ToyHost(shape=ToyShape(hidden=LARGE_HIDDEN))


def texts_of(answers: Sequence[RememberedAnswer]) -> tuple[list[str], list[tuple[int, ...]]]:
    return [answer.prompt for answer in answers], [answer.token_ids for answer in answers]


def test_what_answers_have_in_common_is_taken_off_their_sketches(tmp_path: Path) -> None:
    """The toy's answers of one family have a lot in common; what is left says who wants what."""
    narrow = start(wide_world(), tmp_path / "narrow", host=ToyHost()).state
    assert narrow.sketch_space == SketchSpace()
    host = wide_host()
    state = start(wide_world(), tmp_path / "run", host=host).state
    assert set(state.sketch_space.common) == set(FAMILIES)
    assert not state.sketch_space.bases
    given = [answer for user in state.users.values() for answer in user.answers]
    for family, text in state.sketch_space.common.items():
        own = [example for example in state.sketch_space.examples if example.family == family]
        common = host.sketch(*texts_of(own)).mean(0)
        assert read_vector(text) == pytest.approx(common.clip(-MOST, MOST), abs=0.002)
        later = [answer for answer in given if answer.family == family]
        for answers, mean in ((own, common), (later, read_vector(text))):
            for answer, sketch in zip(answers, host.sketch(*texts_of(answers)), strict=True):
                left = (sketch - mean).clip(-MOST, MOST)
                assert read_vector(answer.sketch) == pytest.approx(left, abs=0.005)
                assert not answer.coordinates


def test_open_replies_lie_where_examples_differ_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_open(monkeypatch, *FAMILIES)
    host = wide_host()
    state = start(wide_world(), tmp_path / "run", host=host).state
    assert set(state.sketch_space.bases) == set(FAMILIES)
    given = [answer for user in state.users.values() for answer in user.answers]
    assert not any(answer.sketch for answer in given)
    for family, text in state.sketch_space.bases.items():
        own = [example for example in state.sketch_space.examples if example.family == family]
        basis = Basis.read(text)
        np.testing.assert_allclose(basis.mean, host.embed(*texts_of(own)).mean(0), atol=1e-6)
        answers = own + [answer for answer in given if answer.family == family]
        for answer, embedding in zip(answers, host.embed(*texts_of(answers)), strict=True):
            assert answer.vector == pytest.approx(basis.coordinates(embedding), abs=0.01)
        places = np.array([answer.vector for answer in answers])
        assert places.std(0).min() > 0.1  # they lie in different places


def test_a_run_with_bases_goes_on_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_open(monkeypatch, *FAMILIES)
    start(wide_world(), tmp_path / "whole", host=wide_host())
    with pytest.raises(Crash):
        start(wide_world(), tmp_path / "run", host=replace(wide_host(), crash_at=30))
    resume(tmp_path / "run", host=wide_host())
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_warm_weights_outlive_those_who_began_with_them(tmp_path: Path) -> None:
    strategy = {"kind": "per_user", "learning_rate": 0.1, **WARM}
    whole = toy_config(seed=3, generations=8, strategy=strategy, checkpoint_every=1)
    late = UsersConfig(count=6, kinds=3, questions=4, arrivals=7)
    tasks = whole.tasks.model_copy(update={"users": late})
    whole = whole.model_copy(update={"tasks": tasks})
    start(whole, tmp_path / "run", host=ToyHost(), should_stop=lambda: True)
    resume(tmp_path / "run", host=ToyHost())
    start(whole, tmp_path / "whole", host=ToyHost())
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    born = [event for event in events_of(tmp_path / "run") if isinstance(event, Born)]
    assert max(event.generation for event in born) > 0
    assert {event.weights for event in born} == {started(tmp_path / "run").weights}
