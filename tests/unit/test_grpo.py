"""GRPO: advantages among the samples of one question, and equal answers that are one lesson."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from runs import start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.ecology import Assignment, Outcome, RememberedAnswer, Rollout
from symbiont_ecology.ecology.learning import Experience, learning_rules
from symbiont_ecology.ecology.learning.rules import REPLAY_WEIGHT
from symbiont_ecology.run.build import check
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config

SINGLE = {"kind": "single", "questions": 3, "samples": 4, "learning_rate": 0.1}


def practice(answers: Sequence[tuple[int, float]], samples: int) -> Outcome:
    """So many samples of each question: what was said, and its reward."""
    family, generator = tasks.build("math.add"), np.random.default_rng(0)
    count = len(answers) // samples
    items = tuple(family.sample("short", generator) for _ in range(count))
    rollouts = tuple(
        Rollout(item, "o1", (said, 1), np.zeros(2), "", reward, reward, Cost(rows=1))
        for item, (said, reward) in zip(np.repeat(items, samples), answers, strict=True)
    )
    return Outcome(Assignment("o1", items, samples), rollouts)


def weights_of(answers: Sequence[tuple[int, float]], samples: int) -> list[object]:
    rule = learning_rules.build("grpo")
    targets, _ = rule.targets(Experience((practice(answers, samples),), {}))
    return [target.weight for target in targets]


FOUR = [(5, 1.0), (6, 1.0), (7, 0.0), (8, 0.0)]


def test_equal_answers_are_one_lesson_with_the_sum_of_their_weights() -> None:
    assert weights_of([(5, 1.0), (6, 0.0), (5, 1.0), (6, 0.0)], 4) == [1.0, -1.0]


def test_equal_answers_whose_verdicts_cancel_are_no_lesson() -> None:
    answers = [(5, 1.0), (5, 0.0), (6, 1.0), (7, 0.0)]
    assert weights_of(answers, 4) == [0.5, -0.5]


def test_a_group_without_a_spread_teaches_nothing() -> None:
    answers = [(5, 1.0), (6, 1.0), (7, 0.0), (8, 0.0)]
    assert weights_of(answers, 2) == []


def test_a_single_sample_per_question_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.samples: .* expected 2 or more, got 1"):
        check(toy_config(strategy=SINGLE | {"samples": 1}, learning_rule="grpo"))


def test_a_run_learns_by_it(tmp_path: Path) -> None:
    config = toy_config(generations=30, strategy=SINGLE, learning_rule="grpo", seed=901)
    start(config, tmp_path / "run", host=ToyHost())
    events = read_events(tmp_path / "run" / "events.jsonl")
    accuracies = [one.accuracy or 0.0 for one in events if isinstance(one, GenerationEnded)]
    assert np.mean(accuracies[-3:]) > np.mean(accuracies[:3]) + 0.2


def test_remembered_answers_are_imitated_beside_the_groups() -> None:
    rule = learning_rules.build({"kind": "grpo", "replay": 1.0})
    assert rule.replay == 1.0
    known = RememberedAnswer("math.add", "short", "math.add: 1+1\n", (7, 1), is_accepted=True)
    experience = Experience((practice([(5, 1.0), (6, 0.0)], 2),), {}, remembered=(known,))
    targets, _ = rule.targets(experience)
    assert [target.token_ids for target in targets] == [(5, 1), (6, 1), (7, 1)]
    assert targets[-1].weight == REPLAY_WEIGHT
    assert targets[-1].item.prompt == known.prompt
