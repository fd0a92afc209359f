"""Intervals and tests for honest numbers: proportions, means, paired differences, curves. Pure
functions.

Every interval has the level that it is asked for, 95 % by default, and two sides. SciPy takes most
of a second to load, so each function that needs it imports what it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.rng import Draw


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth is likely to be."""

    estimate: float
    low: float
    high: float


def wilson(successes: float, n: int, level: float = 0.95) -> Interval:
    """Score interval of a proportion; honest at 0 and 1 and for small ``n`` (Wilson 1927).

    ``successes`` need not be whole: the sum of marks, or of shares where each of ``n`` was seen
    several times.
    ``n = 0`` says nothing: the estimate is NaN and the interval [0, 1].
    """
    from scipy.special import ndtri

    if not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n, got {successes} of {n}")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    z = float(ndtri((1 + level) / 2))
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # The bounds at no and at all successes are 0 and 1 in exact arithmetic.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return Interval(share, low, 1.0 if successes == n else min(1.0, centre + half))


def share_difference(gaps: Sequence[float], n: int | None = None, level: float = 0.95) -> Interval:
    """Interval of the mean of paired differences from −1 to 1, such as those of verdicts.

    A win and a loss are added to what was seen. So it keeps its level where nearly all are ties,
    where few are seen, and where one side has won them all. Of differences that are −1, 0 or 1 it
    is the interval of Bonett & Price (2012). ``n`` says how many things the differences are about,
    if some were seen several times. No differences say nothing: the estimate is NaN.

    Raises:
        ValueError: a difference out of range.
    """
    from scipy.special import ndtri

    if outliers := [gap for gap in gaps if not -1 <= gap <= 1]:
        raise ValueError(f"expected differences from -1 to 1, got {outliers[0]}")
    n, count = len(gaps) if n is None else n, max(len(gaps), 1)
    total, squares = (n * math.fsum(gap**power for gap in gaps) / count for power in (1, 2))
    centre = total / (n + 2)
    spread = math.sqrt(((squares + 2) / (n + 2) - centre**2) / (n + 2))
    half = float(ndtri((1 + level) / 2)) * spread
    estimate = total / n if n else math.nan
    return Interval(estimate, max(centre - half, -1.0), min(centre + half, 1.0))


FEW = 6
"""Seeds or families below which the percentiles of a bootstrap are of no use."""


def crossed_bootstrap(
    values: np.ndarray,
    cells: Sequence[int],
    families: Sequence[int],
    seed: int,
    level: float = 0.95,
    resamples: int = 2000,
    *,
    is_clustered: bool = True,
) -> Interval:
    """Interval of a mean over seeds and items, in which every cell weighs the same (Owen 2007,
    pigeonhole).

    ``values`` is ``(seeds, items)``: for two arms, the differences of their verdicts on the same
    items. ``cells`` and ``families`` say for every item which cell it is from and which family that
    cell is from. Seeds, families and the items within a cell are drawn anew, each with replacement,
    and the interval is that of the percentiles. With ``is_clustered=False`` the families stay: a
    claim about exactly these.

    The percentiles are widened as Student's t is wider than the normal, by the number of seeds or
    of families (the smaller one; Hesterberg 2015, expanded percentiles); below ``FEW`` of them it
    is a t interval with the bootstrap's standard error, within the range of the values. A single
    seed is not drawn: the interval is then about questions alone, and about a single question it is
    [-1, 1]. Where the noise of single answers decides the interval is too wide, since noise is
    drawn more than once, while ``sign_flip`` over seeds' means is exact.

    Raises:
        ValueError: less than two families to draw from; lists that do not fit; or a cell with items
            of two families.
    """
    data = np.asarray(values, dtype=float)
    if data.ndim != 2 or data.shape[0] < 1 or not 0 < data.shape[1] == len(cells) == len(families):
        raise ValueError(
            "expected (seeds, items) and a cell and a family per item, got values of shape "
            f"{data.shape}, {len(cells)} cells and {len(families)} families"
        )
    _, first, cell_of_item = np.unique(cells, return_index=True, return_inverse=True)
    names, family_of_item = np.unique(families, return_inverse=True)
    family_of_cell = family_of_item[first]
    if (family_of_cell[cell_of_item] != family_of_item).any():
        raise ValueError("expected every cell in one family, got a cell with items of two")
    if is_clustered and len(names) < 2:
        raise ValueError(
            "expected at least two families to draw from, got one: set is_clustered=False"
        )
    draw, seeds = Draw(seed), len(data)
    seed_weights = _multinomial(draw("crossed seeds"), seeds, resamples) / seeds
    cell_weights = np.ones((resamples, len(first)))
    if is_clustered:
        counts = _multinomial(draw("crossed families"), len(names), resamples)
        cell_weights = counts[:, family_of_cell].astype(float)
    means, totals = [], np.zeros(resamples)
    for cell in range(len(first)):  # one at a time: bounds memory
        block = data[:, cell_of_item == cell]
        means.append(block.mean())
        per_item = seed_weights @ block  # (resamples, items of the cell)
        picks = draw("crossed items", cell).integers(block.shape[1], size=per_item.shape)
        totals += cell_weights[:, cell] * np.take_along_axis(per_item, picks, axis=1).mean(axis=1)
    samples, mean = totals / cell_weights.sum(axis=1), float(np.mean(means))
    sizes = [len(names)] * is_clustered + [seeds] * (seeds > 1)  # what is drawn, and may be few
    units = min(sizes, default=data.shape[1])
    low, high = _widened(samples, mean, units, level)
    if 2 <= units < FEW:
        low, high = max(low, float(data.min())), min(high, float(data.max()))
    return Interval(mean, low, high)


def _multinomial(generator: np.random.Generator, count: int, resamples: int) -> np.ndarray:
    """How often each of ``count`` things is drawn in as many draws, (resamples, count)."""
    return generator.multinomial(count, np.full(count, 1 / count), resamples)


def _widened(samples: np.ndarray, mean: float, units: int, level: float) -> tuple[float, float]:
    """Percentiles of resampled means, widened by how few units were drawn; below ``FEW`` a t
    interval, as the percentiles would lie beyond the resamples."""
    from scipy import stats

    if units < 2:  # one answer bounds nothing
        return -1.0, 1.0
    factor = math.sqrt(units / (units - 1)) * float(stats.t.ppf((1 + level) / 2, units - 1))
    if units < FEW:
        half = factor * float(samples.std())
        return mean - half, mean + half
    tail = stats.norm.cdf(-factor)
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def paired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Interval of the mean of ``a − b`` over pairs, one pair per seed: Student's t (Student 1908).

    Raises:
        ValueError: the lists differ in length or hold less than two pairs.
    """
    from scipy import stats

    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"expected two lists of one length >= 2, got {len(a)} and {len(b)}")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    mean = float(differences.mean())
    half = float(
        stats.t.ppf((1 + level) / 2, len(a) - 1) * differences.std(ddof=1) / math.sqrt(len(a))
    )
    return Interval(mean, mean - half, mean + half)


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p-value that two systems answer the same items equally well (McNemar 1947).

    ``b`` items only the first answered, ``c`` items only the second; items on which they agree do
    not count.
    """
    from scipy import stats

    if b + c == 0:
        return 1.0
    return float(stats.binomtest(b, b + c, 0.5).pvalue)


def sign_flip(differences: Sequence[float], seed: int = 0) -> float:
    """Exact two-sided p-value that paired differences, one per seed, are as likely up as down
    (Fisher 1935).

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


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """p-values of a family of tests, adjusted so that rejecting those below q keeps the expected
    share of false ones among the rejected below q (Benjamini and Hochberg 1995)."""
    from scipy import stats

    return [float(q) for q in stats.false_discovery_control(p_values)] if len(p_values) else []


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: a quarter, rounded down, is dropped at each end (Agarwal et al.
    2021, arXiv:2108.13264)."""
    from scipy import stats

    if len(values) == 0:
        raise ValueError("expected at least one value, got none")
    return float(stats.trim_mean(np.asarray(values, dtype=float), 0.25))


def detectable(differences: Sequence[float], level: float = 0.05, power: float = 0.8) -> float:
    """The smallest true mean difference that a two-sided paired t-test at ``level`` finds with
    ``power``.

    In the unit of the differences; for as many seeds as there are, with the spread that they have
    (noncentral t, Cohen 1988).

    Raises:
        ValueError: less than two differences, or not ``0 < level < power < 1``.
    """
    from scipy import optimize, stats

    n = len(differences)
    if n < 2 or not 0 < level < power < 1:
        raise ValueError(
            f"expected two differences and 0 < level < power < 1, got {n} with {level} and {power}"
        )
    critical = float(stats.t.ppf(1 - level / 2, n - 1))

    def excess(shift: float) -> float:
        """Power beyond what is asked for, where the true mean lies so many standard errors from
        0."""
        # The square of a noncentral t is a noncentral F: both tails in one, and no NaN far out.
        return float(stats.ncf.sf(critical**2, 1, n - 1, shift**2)) - power

    high = 1.0
    while excess(high) < 0:
        high *= 2
    shift = optimize.brentq(excess, 0.0, high)
    return float(shift * np.std(np.asarray(differences, dtype=float), ddof=1) / math.sqrt(n))


def hypervolume(
    points: Sequence[tuple[float, float]], reference: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Area that points dominate above a reference, more being better on both axes (Zitzler and
    Thiele 1999).

    A point that does not exceed the reference on both axes adds nothing.
    """
    area, height = 0.0, reference[1]
    for x, y in sorted(points, reverse=True):
        if x > reference[0] and y > height:
            area += (x - reference[0]) * (y - height)
            height = y
    return area


def area_under(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Mean height of a curve over the range of ``xs``: the trapezoid rule, divided by that range.

    Raises:
        ValueError: the lists differ in length, or ``xs`` are not at least two values that rise.
    """
    points = np.asarray(xs, dtype=float)
    if len(xs) != len(ys) or len(xs) < 2 or (np.diff(points) <= 0).any():
        raise ValueError(
            f"expected two lists of one length >= 2 with rising xs, got {len(xs)} and {len(ys)}"
        )
    return float(np.trapezoid(np.asarray(ys, dtype=float), points) / (points[-1] - points[0]))


BETS = 32
"""Stakes that are played side by side: their mean wealth is nearly that of the best of them."""


def evidence(wins: int, ties: int, losses: int, margin: float = 0.0) -> float:
    """E-value, whenever it is looked at, that the mean of paired differences exceeds a margin.

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


def adjusted_rand(one: Iterable[object], other: Iterable[object]) -> float:
    """How far two groupings of the same things agree: 1 if they are the same, about 0 by chance.

    The adjusted Rand index (Hubert and Arabie 1985).
    """
    row_names, rows = np.unique(np.array([str(name) for name in one]), return_inverse=True)
    column_names, columns = np.unique(np.array([str(name) for name in other]), return_inverse=True)
    table = np.zeros((len(row_names), len(column_names)))
    np.add.at(table, (rows, columns), 1)
    joint_pairs, row_pairs, column_pairs, all_pairs = (
        float((counts * (counts - 1) / 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0), table.sum())
    )
    # Of one thing or of none there are no pairs.
    expected, most = row_pairs * column_pairs / max(all_pairs, 1), (row_pairs + column_pairs) / 2
    return (joint_pairs - expected) / (most - expected) if most > expected else 1.0
