"""Learning from refusals: accepted answers are raised, and as many refused ones lowered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Fading, Item, LoggedReply, judged_elsewhere
from symbiont_ecology.ecology import Assignment, Outcome, Rollout
from symbiont_ecology.ecology.learning.experience import Experience
from symbiont_ecology.extensions.company.kto import Kto


def outcome(verdicts: list[bool], log_probability: float | None = -7.0) -> Outcome:
    """Return answers of a log with these verdicts."""
    question = Item("", "log", "short", "q", "q", 8, judged_elsewhere)
    rollouts = []
    for number, verdict in enumerate(verdicts):
        logged = LoggedReply("a", verdict, log_probability=log_probability)
        item = replace(question, id=str(number), user="ann", logged=logged)
        said = (number,), np.full(1, np.nan), "a"
        reward = float(verdict)
        rollouts.append(Rollout(item, "o1", *said, reward, reward, Cost(rows=1)))
    items = tuple(rollout.item for rollout in rollouts)
    return Outcome(Assignment("o1", items, 1), tuple(rollouts))


def test_accepted_answers_are_raised_and_as_many_refused_ones_lowered() -> None:
    rule, notes, seen = Kto(refused=0.5), {}, list[float]()
    for _ in range(4):
        experience = Experience((outcome([True, False, False, True, False, False]),), notes)
        targets, notes = rule.targets(experience)
        assert all(target.fading == Fading(-7.0, rule.beta) for target in targets)
        seen += [float(np.mean(target.weight)) for target in targets]
    assert seen.count(1.0) == seen.count(-0.5) == 8


def test_refusals_that_weigh_nothing_are_no_lessons() -> None:
    targets, _ = Kto(refused=0).targets(Experience((outcome([True, False]),), {}))
    assert [target.weight for target in targets] == [1.0]


def test_where_nothing_is_accepted_nothing_is_lowered() -> None:
    assert not Kto().targets(Experience((outcome([False, False]),), {}))[0]


@pytest.mark.parametrize("verdict", [True, False])
def test_an_answer_whose_log_probability_is_not_known_does_not_fade(verdict: bool) -> None:
    experience = Experience((outcome([True, verdict], log_probability=None),), {})
    assert [target.fading for target in Kto().targets(experience)[0]] == [None, None]
