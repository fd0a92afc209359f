"""No difference is found where there is none, more often than was asked for: simulated arms without
a host.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.extensions.study.statistics import crossed_bootstrap

SPLITS, LEVEL = 500, 0.05
CELLS = np.repeat(np.arange(3), 20)


def band(chance: float) -> tuple[float, float]:
    """The central 95 % of the share that ``chance`` alone would find."""
    low, high = stats.binom.ppf([0.025, 0.975], SPLITS, chance) / SPLITS
    return float(low), float(high)


@cache
def simulated(split: int, seeds: int) -> np.ndarray:
    """Differences ``(seeds, items)`` of the verdicts of two arms that do not differ.

    Items are hard or easy for both arms; a seed is good or bad at everything and, apart from that,
    at a cell.
    """
    draw = Draw(split)
    logits = draw("items").normal(0.5, 1.0, CELLS.size) + draw("seeds").normal(
        0, 0.5, (2, seeds, 1)
    )
    logits = logits + draw("cells").normal(0, 0.4, (2, seeds, 3))[..., CELLS]
    verdicts = draw("verdicts").random(logits.shape) < 1 / (1 + np.exp(-logits))
    differences: np.ndarray = verdicts[0].astype(float) - verdicts[1]
    return differences


def test_the_crossed_bootstrap_finds_what_is_not_there_at_most_as_often_as_it_says() -> None:
    intervals = [
        crossed_bootstrap(
            simulated(split, 16),
            CELLS.tolist(),
            CELLS.tolist(),
            split,
            resamples=500,
            is_clustered=False,
        )
        for split in range(SPLITS)
    ]
    _, high = band(
        LEVEL
    )  # it draws the noise of single answers twice, and so errs on the safe side
    assert 0.01 <= np.mean([not one.low <= 0 <= one.high for one in intervals]) <= high
