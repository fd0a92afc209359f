"""Intervals and tests for honest numbers: proportions, means, paired differences, curves. Pure
functions.

Every interval has a level of 95 % and two sides. SciPy takes most of a second to load, so the
function that needs it imports it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.base.rng import Draw

Z = 1.959963984540054
"""Quantile of the normal distribution at 97.5 %."""


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth is likely to be."""

    estimate: float
    low: float
    high: float


def wilson(successes: float, n: int) -> Interval:
    """Return the score interval of a proportion; honest at 0 and 1 and for small ``n`` (Wilson
    1927).

    ``successes`` need not be whole: the sum of marks, or of shares where each of ``n`` was seen
    several times.
    ``n = 0`` says nothing: the estimate is NaN and the interval [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n, got {successes} of {n}")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    share = successes / n
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    # The bounds at no and at all successes are 0 and 1 in exact arithmetic.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(share, low, 1.0 if successes == n else min(1.0, centre + half))


def share_difference(gaps: Sequence[float], n: int | None = None) -> Interval:
    """Return the interval of the mean of paired differences from −1 to 1, such as those of
    verdicts.

    A win and a loss are added to what was seen. So it keeps its level where nearly all are ties,
    where few are seen, and where one side has won them all. Of differences that are −1, 0 or 1 it
    is the interval of Bonett & Price (2012). ``n`` says how many things the differences are about,
    if some were seen several times. No differences say nothing: the estimate is NaN.

    Raises:
        ValueError: a difference out of range.
    """
    if outliers := [gap for gap in gaps if not -1 <= gap <= 1]:
        raise ValueError(f"expected differences from -1 to 1, got {outliers[0]}")
    n, count = len(gaps) if n is None else n, max(len(gaps), 1)
    total, squares = (n * math.fsum(gap**power for gap in gaps) / count for power in (1, 2))
    centre = total / (n + 2)
    spread = math.sqrt(((squares + 2) / (n + 2) - centre**2) / (n + 2))
    half = Z * spread
    estimate = total / n if n else math.nan
    return Interval(estimate, max(centre - half, -1.0), min(centre + half, 1.0))


def mcnemar(b: int, c: int) -> float:
    """Return the exact two-sided p-value that two systems answer the same items equally well
    (McNemar 1947).

    ``b`` items only the first answered, ``c`` items only the second; items on which they agree do
    not count.
    """
    from scipy import stats

    if b + c == 0:
        return 1.0
    return float(stats.binomtest(b, b + c, 0.5).pvalue)


def sign_flip(differences: Sequence[float], seed: int = 0) -> float:
    """Return the exact two-sided p-value that paired differences, one per seed, are as likely up as
    down (Fisher 1935).

    All 2ⁿ patterns of signs are tried up to 16 differences; beyond, 100,000 that ``seed`` draws and
    the one that was seen. With n differences no p-value is below 2 / 2ⁿ: five seeds cannot reach
    0.05, six can.

    Raises:
        ValueError: no differences.
    """
    if len(differences) == 0:
        raise ValueError("expected at least one difference, got none")
    sizes = np.abs(np.asarray(differences, dtype=float))
    # Sums that are equal in exact arithmetic must count as equal.
    threshold = abs(math.fsum(differences)) - 1e-9 * float(sizes.sum())
    if len(sizes) <= 16:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.mean(np.abs(sums) >= threshold))
    generator, sums = Draw(seed)("sign flip"), np.zeros(100_000)
    for size in sizes:
        sums += size * (1 - 2 * generator.integers(2, size=len(sums)))
    return float((np.count_nonzero(np.abs(sums) >= threshold) + 1) / (len(sums) + 1))


BETS = 32
"""Stakes that are played side by side: their mean wealth is nearly that of the best of them."""


def evidence(wins: int, ties: int, losses: int, margin: float = 0.0) -> float:
    """Return the e-value, whenever it is looked at, that the mean of paired differences exceeds a
    margin.

    A pair is a win (+1), a tie (0) or a loss (−1). Where the true mean is at most ``margin``, in
    (−1, 1), the chance that this *ever* reaches 1/α, with pairs coming one after the other, is at
    most α: so a test may stop as soon as it does (Ville 1939; betting with a mixture of stakes,
    Waudby-Smith & Ramdas 2023, arXiv:2010.09686). Below 1 it is evidence of nothing.

    Raises:
        ValueError: counts below zero, or a margin out of range.
    """
    if min(wins, ties, losses) < 0 or not -1 < margin < 1:
        raise ValueError(
            f"expected counts and a margin in (-1, 1), got {wins}, {ties}, {losses} and {margin}"
        )
    stakes = (np.arange(BETS) + 0.5) / BETS / (1 + margin)  # no stake can lose more than there is
    wealth = (
        wins * np.log1p(stakes * (1 - margin))
        + ties * np.log1p(-stakes * margin)
        + losses * np.log1p(-stakes * (1 + margin))
    )
    return float(np.exp(np.minimum(wealth, 700)).mean())
