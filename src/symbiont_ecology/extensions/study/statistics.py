"""Statistics of comparisons: a bootstrap over seeds, families and items, adjusted p-values, power,
and areas. Pure functions.

Every interval has a level of 95 % and two sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.statistics import Interval

POWER = 0.8
"""Share of suites that would find a difference which is detectable."""
FEW = 6
"""Seeds or families below which the percentiles of a bootstrap are of no use."""


def crossed_bootstrap(
    values: np.ndarray,
    cells: Sequence[int],
    families: Sequence[int],
    seed: int,
    resamples: int = 1000,
    *,
    is_clustered: bool = True,
) -> Interval:
    """Interval of a mean over seeds and items, in which every cell weighs the same (Owen 2007,
    pigeonhole).

    ``values`` is ``(seeds, items)``: for two arms, the differences of their verdicts on the same
    items. ``cells`` and ``families`` say for every item which cell it is from and which family that
    cell is from. Seeds, families and the items within a cell are drawn anew, each with replacement,
    and the interval is that of the percentiles. With ``is_clustered=False`` the families stay: a
    claim about exactly these, which is all that can be said of one.

    The percentiles are widened as Student's t is wider than the normal, by the number of seeds or
    of families (the smaller one; Hesterberg 2015, expanded percentiles); below ``FEW`` of them it
    is a t interval with the bootstrap's standard error, within the range of the values. A single
    seed is not drawn: the interval is then about questions alone, and about a single question it is
    [-1, 1]. Where the noise of single answers decides the interval is too wide, since noise is
    drawn more than once, while ``sign_flip`` over seeds' means is exact.
    """
    data = np.asarray(values, dtype=float)
    _, first, cell_of_item = np.unique(cells, return_index=True, return_inverse=True)
    names, family_of_item = np.unique(families, return_inverse=True)
    family_of_cell = family_of_item[first]
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
    low, high = _widened(samples, mean, units)
    if 2 <= units < FEW:
        low, high = max(low, float(data.min())), min(high, float(data.max()))
    return Interval(mean, low, high)


def _multinomial(generator: np.random.Generator, count: int, resamples: int) -> np.ndarray:
    """Return how often each of ``count`` things is drawn in as many draws, (resamples, count)."""
    return generator.multinomial(count, np.full(count, 1 / count), resamples)


def _widened(samples: np.ndarray, mean: float, units: int) -> tuple[float, float]:
    """Percentiles of resampled means, widened by how few units were drawn; below ``FEW`` a t
    interval, as the percentiles would lie beyond the resamples."""
    from scipy import stats

    if units < 2:  # one answer bounds nothing
        return -1.0, 1.0
    factor = math.sqrt(units / (units - 1)) * float(stats.t.ppf(0.975, units - 1))
    if units < FEW:
        half = factor * float(samples.std())
        return mean - half, mean + half
    tail = stats.norm.cdf(-factor)
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def detectable(differences: Sequence[float]) -> float:
    """The smallest true mean difference that a two-sided paired t-test at 5 % finds four times out
    of five.

    In the unit of the differences; for as many seeds as there are, with the spread that they have
    (noncentral t, Cohen 1988).
    """
    from scipy import optimize, stats

    n = len(differences)
    critical = float(stats.t.ppf(0.975, n - 1))

    def excess(shift: float) -> float:
        """Power beyond what is asked for, where the true mean lies so many standard errors from
        0."""
        # The square of a noncentral t is a noncentral F: both tails in one, and no NaN far out.
        return float(stats.ncf.sf(critical**2, 1, n - 1, shift**2)) - POWER

    high = 1.0
    while excess(high) < 0:
        high *= 2
    shift = optimize.brentq(excess, 0.0, high)
    return float(shift * np.std(np.asarray(differences, dtype=float), ddof=1) / math.sqrt(n))
