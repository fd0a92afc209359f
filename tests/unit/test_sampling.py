"""More rollouts per question where success is rare, and as many as usual on average."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted
from symbiont_ecology.ecology import Assignment, EcologyState, SuccessPosterior
from symbiont_ecology.ecology.routing.allocators import by_success
from symbiont_ecology.run.build import check
from symbiont_ecology.run.start import resume, start
from symbiont_ecology.tasks import tasks
from toy import ToyHost, toy_config, toy_ecology

DEPTHS = ("short", "medium", "long")
FAMILIES = ("math.add", "string.sort", "logic.bool")


def assigned(counts: Sequence[int]) -> list[Assignment]:
    """So many questions of one cell each."""
    generator = np.random.default_rng(0)
    cells = [(family, depth) for family in FAMILIES for depth in DEPTHS]
    return [
        Assignment(
            "o1", tuple(tasks.build(family).sample(depth, generator) for _ in range(count)), 4
        )
        for (family, depth), count in zip(cells, counts, strict=False)
    ]


def samples_of(rates: Sequence[float], samples: int = 4, most: int = 8) -> list[int]:
    """Of one question in each of so many cells with these success rates."""
    asked = assigned([1] * len(rates))
    state = EcologyState(0)
    state.posteriors["o1"] = {
        one.niche: SuccessPosterior(100 * rate, 100 * (1 - rate))
        for one, rate in zip(asked, rates, strict=True)
    }
    return [one.samples for one in by_success(asked, samples, most, state)]


def test_what_is_nearly_always_right_is_sampled_less_than_what_hardly_ever_is() -> None:
    easy, rare = samples_of([0.95, 0.1])
    assert easy < 4 < rare


def test_where_all_succeed_alike_nothing_changes() -> None:
    assert samples_of([0.4] * 5) == [4] * 5


@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    samples=st.integers(2, 5),
    extra=st.integers(1, 6),
)
def test_no_question_is_left_out_and_no_more_is_asked_than_usual(
    rates: list[float], samples: int, extra: int
) -> None:
    found = samples_of(rates, samples, samples + extra)
    assert all(1 <= count <= samples + extra for count in found)
    assert sum(found) == samples * len(rates)


def test_several_questions_of_a_cell_count_each() -> None:
    asked = assigned([3, 1, 2])
    found = by_success(asked, 4, 8, EcologyState(0))
    spent = sum(one.samples * len(one.items) for one in found)
    assert 4 * 6 - 3 < spent <= 4 * 6


@pytest.mark.parametrize("samples", [0, 1, 6, 9])
def test_a_most_that_has_nothing_to_share_out_is_refused(samples: int) -> None:
    strategy = {"kind": "single", "samples": samples, "most_samples": 6}
    rule = "supervised" if samples == 0 else "policy_gradient"
    with pytest.raises(ConfigError, match=r"strategy\.most_samples: expected 0, or more than"):
        check(toy_config(strategy=strategy, learning_rule=rule))


@pytest.mark.parametrize(
    "strategy",
    [
        toy_ecology(most_samples=8),
        {"kind": "single", "questions": 3, "samples": 3, "most_samples": 8},
        {"kind": "independent", "questions": 3, "samples": 3, "most_samples": 8},
        {"kind": "per_habitat", "samples": 3, "most_samples": 8},
        {"kind": "nearest", "samples": 3, "most_samples": 8},
    ],
    ids=lambda strategy: strategy["kind"],
)
def test_a_run_asks_unequally_and_resumes_exactly(strategy: dict[str, Any], tmp_path: Path) -> None:
    config = toy_config(seed=902, generations=6, strategy=strategy)
    start(config, tmp_path / "whole", host=ToyHost())
    start(config, tmp_path / "run", host=ToyHost(), should_stop=lambda: True)
    resume(tmp_path / "run", host=ToyHost())
    logs = [(tmp_path / name / "events.jsonl") for name in ("whole", "run")]
    assert logs[0].read_bytes() == logs[1].read_bytes()
    asked = [
        event.samples
        for event in read_events(logs[0])
        if isinstance(event, Acted) and event.purpose == "practice"
    ]
    assert len(set(asked)) > 1
