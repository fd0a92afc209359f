from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.statistics import mcnemar, share_difference, sign_flip, wilson
from symbiont_ecology.extensions.study.comparison import over_seeds
from symbiont_ecology.extensions.study.statistics import crossed_bootstrap, detectable

FINITE = st.floats(-5, 5, width=16)


@given(st.integers(0, 300), st.data())
def test_wilson_agrees_with_scipy(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    if n == 0:
        assert math.isnan(wilson(0, 0).estimate)
        return
    ours = wilson(successes, n)
    theirs = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= ours.low <= ours.estimate <= ours.high <= 1


def _gaps(wins: int, losses: int, n: int) -> list[float]:
    """The differences of ``n`` pairs of verdicts that are 0 or 1."""
    return [1.0] * wins + [-1.0] * losses + [0.0] * (n - wins - losses)


@pytest.mark.parametrize(
    ("n", "wins", "losses"), [(40, 0.02, 0.0), (40, 0.05, 0.02), (100, 0.3, 0.2), (40, 0.95, 0.0)]
)
def test_differences_of_shares_are_covered_as_often_as_they_say(
    n: int, wins: float, losses: float
) -> None:
    counts = np.random.default_rng(0).multinomial(n, [wins, losses, 1 - wins - losses], size=400)
    found = [share_difference(_gaps(won, lost, n)) for won, lost, _ in counts.tolist()]
    assert np.mean([one.low <= wins - losses <= one.high for one in found]) >= 0.94


@pytest.mark.parametrize(("better", "worse"), [((2, 2), (2, 3)), ((0.5, 0.2), (0.5, 0.5))])
def test_differences_of_partial_verdicts_are_covered_and_narrower(
    better: tuple[float, float], worse: tuple[float, float]
) -> None:
    draws = np.random.default_rng(1)
    gaps = draws.beta(*better, size=(400, 60)) - draws.beta(*worse, size=(400, 60))
    truth = better[0] / sum(better) - worse[0] / sum(worse)
    found = [share_difference(row) for row in gaps.tolist()]
    assert 0.94 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.99
    assert share_difference([0.4] * 40).low > 0.3
    assert share_difference([0.4] * 40).estimate == pytest.approx(0.4)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_differences_of_whole_verdicts_are_those_of_bonett_and_price(
    wins: int, losses: int, ties: int
) -> None:
    n = wins + losses + ties
    found = share_difference(_gaps(wins, losses, n))
    up, down = (wins + 1) / (n + 2), (losses + 1) / (n + 2)
    half = stats.norm.ppf(0.975) * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    expected = max(up - down - half, -1), min(up - down + half, 1)
    assert (found.low, found.high) == pytest.approx(expected)
    assert math.isnan(found.estimate) if n == 0 else found.estimate == (wins - losses) / n


def test_the_interval_over_seeds_agrees_with_scipy() -> None:
    seeds = np.random.default_rng(0).normal(1, 1, 5)
    theirs = stats.ttest_1samp(seeds, 0).confidence_interval(0.95)
    ours = over_seeds(seeds.tolist())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_mcnemar_is_the_exact_test_of_discordant_items() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 6) == pytest.approx(2 * 0.5**6)
    assert mcnemar(3, 11) == mcnemar(11, 3)


# Seeds crossed with items.


def crossed(
    trial: int, of_seeds: float, of_families: float
) -> tuple[np.ndarray, list[int], list[int]]:
    """Values with mean 0: 12 seeds and 12 families, each with its effect; a family is one cell of 8
    items."""
    draw, families = Draw(trial), np.repeat(np.arange(12), 8)
    values = draw("seeds").normal(0, of_seeds, (12, 1)) + draw("noise").normal(0, 0.2, (12, 96))
    values += draw("families").normal(0, of_families, 12)[families]
    return values, families.tolist(), families.tolist()


@pytest.mark.parametrize(
    ("of_seeds", "of_families", "is_clustered"), [(0.2, 0, False), (0.1, 0.3, True)]
)
def test_the_crossed_bootstrap_covers_the_mean_about_as_often_as_it_says(
    of_seeds: float, of_families: float, is_clustered: bool
) -> None:
    how: dict[str, Any] = {"resamples": 300, "is_clustered": is_clustered}
    worlds = [crossed(trial, of_seeds, of_families) for trial in range(200)]
    intervals = [crossed_bootstrap(*one, trial, **how) for trial, one in enumerate(worlds)]
    covered = sum(interval.low <= 0 <= interval.high for interval in intervals)
    assert 0.88 <= covered / len(intervals) <= 0.98


def test_the_crossed_bootstrap_depends_on_its_seed_and_not_on_the_order_of_items_or_names() -> None:
    values, cells, families = crossed(1, 0.1, 0.1)
    once = crossed_bootstrap(values, cells, families, 1)
    assert once == crossed_bootstrap(values, cells, families, 1)
    assert once != crossed_bootstrap(values, cells, families, 2)
    grouped = np.argsort(Draw(0)("shuffle").random(96))
    shuffled = crossed_bootstrap(
        values[:, grouped], [7 * cells[i] + 3 for i in grouped], [families[i] for i in grouped], 1
    )
    assert (shuffled.low, shuffled.high) == pytest.approx((once.low, once.high), abs=0.02)


# Differences over seeds.


@given(st.lists(st.one_of(FINITE, st.sampled_from([-0.1, 0.0, 0.1, 0.3])), min_size=1, max_size=7))
def test_sign_flip_tries_every_pattern(differences: list[float]) -> None:
    seen = abs(sum(differences)) - 1e-9 * sum(map(abs, differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    beyond = [
        abs(sum(s * d for s, d in zip(p, differences, strict=True))) >= seen for p in patterns
    ]
    assert sign_flip(differences) == sum(beyond) / len(patterns)
    for same in ([-one for one in differences], differences[::-1]):
        assert sign_flip(same) == sign_flip(differences)


def test_sign_flip_draws_patterns_where_there_are_too_many() -> None:
    differences = Draw(0)("differences").normal(0.5, 1, 20).tolist()
    assert sign_flip(differences) == sign_flip(differences) != sign_flip(differences, 1)
    sums = np.zeros(1)
    for one in differences:
        sums = np.concatenate([sums + one, sums - one])
    assert sign_flip(differences) == pytest.approx(
        np.mean(np.abs(sums) >= abs(sum(differences))), abs=0.004
    )
    assert sign_flip([1.0] * 40) == 1 / 100_001


def test_what_is_detectable_is_detected_with_the_power_asked_for() -> None:
    for n in (2, 5, 16):
        differences = Draw(n)("differences").normal(0, 0.3, n)
        effect = detectable(differences.tolist())
        trials = Draw(n)("trials").normal(effect, differences.std(ddof=1), (20_000, n))
        found = np.mean(stats.ttest_1samp(trials, 0, axis=1).pvalue < 0.05)
        assert found == pytest.approx(0.8, abs=0.012)


def test_what_is_detectable_scales_with_the_spread_and_shrinks_with_seeds() -> None:
    assert detectable([0.0, 1.0, 2.0]) == pytest.approx(detectable([5.0, 15.0, 25.0]) / 10)
    assert detectable([0.0, 1.0] * 8) < detectable([0.0, 1.0] * 2)
    assert detectable([0.2, 0.2]) == 0.0
    # The textbook number: 34 pairs are the least that find half a standard deviation (Cohen 1988).
    few, enough = (detectable(stats.zscore(np.arange(float(n)), ddof=1).tolist()) for n in (33, 34))
    assert enough < 0.5 < few < 0.52
