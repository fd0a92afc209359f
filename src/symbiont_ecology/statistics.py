"""Intervals and tests for honest numbers: proportions, means, paired differences. Pure functions.

Every interval has the level that it is asked for, 95 % by default, and two sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from symbiont_ecology.rng import Draw


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth is likely to be."""

    estimate: float
    low: float
    high: float


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Score interval of a proportion; honest at 0 and 1 and for small ``n`` (Wilson 1927).

    ``n = 0`` says nothing: the estimate is NaN and the interval [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n, got {successes} of {n}")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    z = float(stats.norm.ppf((1 + level) / 2))
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # The bounds at no and at all successes are 0 and 1 in exact arithmetic.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(share, low, 1.0 if successes == n else min(1.0, centre + half))


def bootstrap_interval(
    values: Sequence[float], seed: int, level: float = 0.95, resamples: int = 9999
) -> Interval:
    """Interval of the mean of at least two independent values: BCa bootstrap (Efron 1987).

    The seed and nothing else decides the resampling, so the same values give the same interval. With less
    than about ten values it is too narrow; use ``paired_interval`` for differences over a few seeds.
    """
    data = np.asarray(values, dtype=float)
    if data.size < 2:
        raise ValueError(f"expected at least two values, got {data.size}")
    mean = float(data.mean())
    if np.ptp(data) == 0:
        return Interval(mean, mean, mean)
    found = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=resamples,
        confidence_level=level,
        method="BCa",
        batch=max(1, 1_000_000 // data.size),  # values held at once: bounds memory on long lists
        random_state=Draw(seed)("bootstrap"),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def paired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Interval of the mean of ``a − b`` over pairs, one pair per seed: Student's t (Student 1908).

    Raises:
        ValueError: the lists differ in length or hold less than two pairs.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"expected two lists of one length >= 2, got {len(a)} and {len(b)}")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    mean = float(differences.mean())
    half = float(stats.t.ppf((1 + level) / 2, len(a) - 1) * differences.std(ddof=1) / math.sqrt(len(a)))
    return Interval(mean, mean - half, mean + half)


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p-value that two systems answer the same items equally well (McNemar 1947).

    ``b`` items only the first answered, ``c`` items only the second; items on which they agree do not count.
    """
    if b + c == 0:
        return 1.0
    return float(stats.binomtest(b, b + c, 0.5).pvalue)
