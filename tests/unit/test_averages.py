"""Averages of learning rules move once a generation, whoever is asked, and in whatever order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from classroom import answer
from symbiont_ecology.ecology import Assignment, Outcome
from symbiont_ecology.ecology.learning import Experience, LearningRule
from symbiont_ecology.ecology.learning.rules import ExpertIteration, PolicyGradient
from symbiont_ecology.tasks import tasks

REWARDS = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)


def outcomes() -> list[Outcome]:
    """Six users ask the same organelle something of one cell; it pleases half of them."""
    family, generator = tasks.build("math.add"), np.random.default_rng(0)
    items = [
        replace(family.sample("short", generator), user=f"user {place}")
        for place in range(len(REWARDS))
    ]
    return [
        Outcome(Assignment("o1", (item,)), (answer(item, "o1", reward),))
        for item, reward in zip(items, REWARDS, strict=True)
    ]


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(
    ("rule", "note"), [(PolicyGradient(), "baseline"), (ExpertIteration(skip=0.8), "right")]
)
def test_an_average_does_not_depend_on_the_order_of_users(
    rule: LearningRule, note: str, step: int
) -> None:
    asked, name = tuple(outcomes()[::step]), f"{note}:math.add/short"
    targets, notes = rule.targets(Experience(asked, {name: 0.5}))
    assert notes[name] == pytest.approx(0.5)
    if note == "baseline":
        assert sorted(target.weight for target in targets) == [-0.5] * 3 + [0.5] * 3
