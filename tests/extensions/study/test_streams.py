"""Measures of runs in worlds with users, on outcomes that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from symbiont_ecology.base.flops import Cost
from symbiont_ecology.extensions.study.measures import STREAM_MEASURES, Questions, Stream
from symbiont_ecology.extensions.study.outcomes import StreamRecord
from symbiont_ecology.run.config import RunConfig
from towns import config, world_of


def stream(plan: RunConfig, accepted: np.ndarray | bool = True, **outcome: Any) -> Stream:
    """A run of one organelle; ``accepted`` says of every question whether its answer was."""
    length = plan.run.generations
    asked = Questions.of(plan, length)
    letters = np.where(np.broadcast_to(accepted, asked.generations.shape), "1", "0")
    usual = {"verdicts": "".join(letters), "population": [1] * length}
    return Stream(StreamRecord.model_validate({**usual, **outcome}), Cost(), asked)


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
    assert len(set(run.asked.users[~right].tolist())) == 3
    assert measured("honest", run) == 1
    would = right_where_asked(config(count=24, questions=24, fickle=1))
    assert measured("honest", stream(config(count=24, questions=24), would)) == 1


def lived_through(asked: Questions, moment: int) -> np.ndarray:
    """Whether each question is of a user who was there twenty generations before a moment."""
    there: np.ndarray = asked.world.arrivals[asked.users] <= moment - 20
    return there


@pytest.mark.parametrize("name", ["back", "others"])
def test_who_came_after_a_change_or_just_before_it_did_not_live_through_it(name: str) -> None:
    plan = config(count=60, questions=30, arrivals=50, drift_at=30, length=60)
    old = lived_through(Questions.of(plan, 60), 30)
    assert measured(name, stream(plan, old)) == {"back": 1, "others": 0}[name]


@pytest.mark.parametrize("name", ["back", "others"])
def test_who_was_there_from_the_start_lived_through_a_change_however_early(name: str) -> None:
    assert measured(name, stream(config(drift_at=10))) == {"back": 1, "others": 0}[name]


EVERYONE = range(12)
"""The users of the town. All ask in each generation, if there are as many questions."""


def test_only_who_serves_somebody_at_the_end_is_counted() -> None:
    moves = [(0, user, user % 4) for user in EVERYONE]
    served_by = [*(user % 3 for user in range(11)), -1]
    run = stream(config(), moves=moves, served_by=served_by)
    assert measured("serving", run) == 3
    assert measured("serving", stream(config(), served_by=[-1] * 12)) == 0


def test_kinds_are_found_if_everyone_is_served_and_shares_a_server_with_its_kind_alone() -> None:
    plan = config(kinds=3)
    kinds = world_of(plan).kinds(0).tolist()
    assert measured("exact", stream(plan, served_by=kinds)) == 1
    assert measured("exact", stream(plan, served_by=[0] * 12)) == 0
    left = [-1 if kind == 2 else kind for kind in kinds]
    assert measured("exact", stream(plan, served_by=left)) == 0
    assert measured("exact", stream(config(count=1, kinds=1), served_by=[0])) == 1


def test_an_old_outcome_says_who_serves_if_everyone_answered_after_the_last_death() -> None:
    moves = [(0, user, 0) for user in EVERYONE] + [(5, user, user % 3) for user in EVERYONE]
    plan = config(length=20)
    run = stream(plan, moves=moves, deaths=[3, 18], population=[5] * 20)
    assert measured("serving", run) == 3
    assert measured("exact", run) is not None


def test_an_old_outcome_says_nothing_of_servers_if_one_of_them_may_have_died() -> None:
    moves = [(0, user, user % 3) for user in EVERYONE]
    run = stream(config(length=20), moves=moves, deaths=[19], population=[5] * 20)
    assert measured("serving", run) is None
    assert measured("exact", run) is None


def test_an_old_outcome_tells_the_dead_where_all_the_living_are_known() -> None:
    plan = config(length=20)
    asked = Questions.of(plan, 20)
    fell_silent = (asked.users < 4) & (asked.generations > 9)
    moves = [(0, user, 0 if user < 4 else 1) for user in EVERYONE]
    verdicts = "".join(np.where(fell_silent, "-", "1"))
    outcome: dict[str, Any] = {"moves": moves, "verdicts": verdicts, "deaths": [9]}
    run = stream(plan, population=[2] * 9 + [1] * 11, **outcome)
    assert measured("serving", run) == 1
    assert measured("exact", run) == 0
    assert measured("serving", stream(plan, population=[2] * 20, **outcome)) is None
