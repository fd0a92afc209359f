from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from symbiont_ecology.rng import Draw
from symbiont_ecology.statistics import Interval, bootstrap_interval, mcnemar, paired_interval, wilson


@given(st.integers(0, 300), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(n: int, data: st.DataObject, level: float) -> None:
    successes = data.draw(st.integers(0, n))
    if n == 0:
        assert math.isnan(wilson(0, 0).estimate)
        return
    ours = wilson(successes, n, level)
    theirs = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= ours.low <= ours.estimate <= ours.high <= 1


def test_wilson_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson(3, 2)


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    intervals = [
        bootstrap_interval(Draw(0)("normal", trial).normal(3.0, 1.0, 20).tolist(), trial, resamples=400)
        for trial in range(200)
    ]
    covered = sum(interval.low <= 3.0 <= interval.high for interval in intervals)
    assert 0.88 <= covered / len(intervals) <= 0.99


def test_the_bootstrap_depends_on_the_seed_alone() -> None:
    values = Draw(0)("values").normal(size=20).tolist()
    assert bootstrap_interval(values, 1) == bootstrap_interval(values, 1) != bootstrap_interval(values, 2)
    assert bootstrap_interval([0.5, 0.5], 1) == Interval(0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="at least two values, got 1"):
        bootstrap_interval([0.5], 1)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=12))
def test_the_paired_interval_turns_round_with_its_sides(pairs: list[tuple[float, float]]) -> None:
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    one, other = paired_interval(a, b), paired_interval(b, a)
    assert (one.estimate, one.low, one.high) == pytest.approx((-other.estimate, -other.high, -other.low))


def test_the_paired_interval_agrees_with_scipy() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(1, 1, 5), generator.normal(0, 1, 5)
    theirs = stats.ttest_rel(a, b).confidence_interval(0.9)
    ours = paired_interval(a.tolist(), b.tolist(), 0.9)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    with pytest.raises(ValueError, match="got 1 and 2"):
        paired_interval([1], [1, 2])


def test_mcnemar_is_the_exact_test_of_discordant_items() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 6) == pytest.approx(2 * 0.5**6)
    assert mcnemar(3, 11) == mcnemar(11, 3)
