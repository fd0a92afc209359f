"""Measures of runs in worlds with habitats, on outcomes that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symbiont_ecology.analysis.streams import STREAM_MEASURES, Questions, Stream, questions_of
from symbiont_ecology.config import RunConfig
from symbiont_ecology.experiments.outcomes import StreamOutcome
from towns import config, world_of


def stream(plan: RunConfig, accepted: np.ndarray | bool = True, **outcome: Any) -> Stream:
    """A run of one organelle; ``accepted`` says of every question whether its answer was."""
    length = plan.run.generations
    asked = questions_of(plan, length)
    letters = np.where(np.broadcast_to(accepted, asked.generations.shape), "1", "0")
    usual = {
        "protocol": "p",
        "source": "s",
        "kind": "stream",
        "arm": "ecology",
        "seed": plan.seed,
        "world": "town",
        "verdicts": "".join(letters),
        "population": [1] * length,
        "train": {},
    }
    return Stream(StreamOutcome.model_validate({**usual, **outcome}), asked)


def measured(name: str, run: Stream) -> float | None:
    return STREAM_MEASURES[name](run)


def test_regimes_that_please_all_are_measured_so() -> None:
    run = stream(config(kinds=3, regimes=(0, 1, 0), regime=12, length=60))
    assert measured("returns", run) == 1
    assert measured("thirds", run) == 1
    assert measured("back", run) is None


def test_a_regime_of_few_questions_has_no_last_third_and_the_others_keep_theirs() -> None:
    lengths = range(10, 20)
    runs = [stream(config(regimes=(0, 1, 0), regime=12, length=length)) for length in lengths]
    assert [measured("thirds", run) for run in runs] == [1] * len(runs)
    assert measured("thirds", stream(config(regimes=(0, 1), regime=12, length=2))) is None


def right_where_asked(plan: RunConfig) -> np.ndarray:
    """Whether each question accepts its reference answer."""
    return np.array(
        [
            bool(item.verifier(item.answer))
            for generation in range(plan.run.generations)
            for item in world_of(plan).questions(generation)
        ]
    )


def test_all_users_that_answer_at_random_are_left_out_of_the_honest() -> None:
    plan = config(count=24, questions=24, fickle=3)
    right = right_where_asked(plan)
    run = stream(plan, right)
    assert len(set(run.asked.habitats[~right].tolist())) == 3
    assert measured("honest", run) == 1
    would = right_where_asked(config(count=24, questions=24, fickle=1))
    assert measured("honest", stream(config(count=24, questions=24), would)) == 1


def lived_through(asked: Questions, moment: int) -> np.ndarray:
    """Whether each question is of a user who was there twenty generations before a moment."""
    there: np.ndarray = asked.world.arrivals[asked.habitats] <= moment - 20
    return there


@pytest.mark.parametrize("name", ["back", "others"])
def test_who_came_after_a_change_or_just_before_it_did_not_live_through_it(name: str) -> None:
    plan = config(count=60, questions=30, arrivals=50, drift_at=30, length=60)
    old = lived_through(questions_of(plan, 60), 30)
    assert measured(name, stream(plan, old)) == {"back": 1, "others": 0}[name]


@pytest.mark.parametrize("name", ["back", "others"])
def test_who_was_there_from_the_start_lived_through_a_change_however_early(name: str) -> None:
    assert measured(name, stream(config(drift_at=10))) == {"back": 1, "others": 0}[name]
