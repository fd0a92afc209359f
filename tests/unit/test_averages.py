"""Averages of learning rules move once a generation, whoever is asked, and in whatever order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from classroom import answer
from symbiont_ecology.ecology import Assignment, Outcome
from symbiont_ecology.ecology.learning import Experience
from symbiont_ecology.ecology.learning.rules import ExpertIteration, PolicyGradient
from symbiont_ecology.tasks import tasks

REWARDS = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)


def outcomes() -> list[Outcome]:
    """Six users ask the same organelle something of one cell; it pleases half of them."""
    family, generator = tasks.build("math.add"), np.random.default_rng(0)
    items = [
        replace(family.sample("short", generator), habitat=f"user {place}")
        for place in range(len(REWARDS))
    ]
    return [
        Outcome(Assignment("o1", (item,)), (answer(item, "o1", reward),))
        for item, reward in zip(items, REWARDS, strict=True)
    ]


@pytest.mark.parametrize("step", [1, -1])
def test_a_baseline_does_not_depend_on_the_order_of_users(step: int) -> None:
    asked = tuple(outcomes()[::step])
    targets, notes = PolicyGradient().targets(Experience(asked, {"baseline:math.add/short": 0.5}))
    assert notes["baseline:math.add/short"] == pytest.approx(0.5)
    assert sorted(target.weight for target in targets) == [-0.5] * 3 + [0.5] * 3


@pytest.mark.parametrize("step", [1, -1])
def test_a_success_rate_does_not_depend_on_the_order_of_users(step: int) -> None:
    asked = tuple(outcomes()[::step])
    _, notes = ExpertIteration(skip=0.8).targets(Experience(asked, {"right:math.add/short": 0.5}))
    assert notes["right:math.add/short"] == pytest.approx(0.5)
