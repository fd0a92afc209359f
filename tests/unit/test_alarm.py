"""The alarm: rare while nothing changes, however noisy verdicts are, and soon there when half of it
does."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology.ecology import DriftDetector, drift_score

CALM, LATER, LEVEL = 150, 12, 8.0


def alarms(rates: list[float], verdicts: int, seed: int, changed: int = 0) -> list[float]:
    """The alarm of every generation; the first ``changed`` cells are always wrong after the calm
    ones."""
    generator = np.random.default_rng(seed)
    drift_detectors, found = [DriftDetector()] * len(rates), []
    for generation in range(CALM + LATER):
        now = np.array(rates)
        if generation >= CALM:
            now[:changed] = 0.0
        right = generator.random((len(rates), verdicts)) < now[:, None]
        drift_detectors = [
            watch.after([float(one) for one in row])
            for watch, row in zip(drift_detectors, right, strict=True)
        ]
        found.append(drift_score(drift_detectors))
    return found


@pytest.mark.parametrize("verdicts", [1, 4])
@pytest.mark.parametrize(
    "rates", [[0.85] * 26, [0.3, 0.5, 0.7, 0.9, 0.98] * 5, [0.5] * 26, [0.2] * 26]
)
def test_an_alarm_is_rare_without_a_change(rates: list[float], verdicts: int) -> None:
    loudest = [max(alarms(rates, verdicts, seed)) for seed in range(12)]
    assert sum(level >= LEVEL for level in loudest) <= 1


@pytest.mark.parametrize(("verdicts", "delay"), [(1, 4), (4, 2)])
def test_an_alarm_comes_soon_after_half_of_the_cells_changed(verdicts: int, delay: int) -> None:
    levels = [alarms([0.85] * 26, verdicts, seed, 13)[CALM:] for seed in range(20)]
    late = [max(one[:delay]) < LEVEL for one in levels]
    assert sum(late) <= 1


def test_nothing_known_is_no_alarm() -> None:
    assert drift_score([]) == 0.0
