"""Curricula: how the questions of a generation are dealt out to cells."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from symbiont_ecology.base.types import Cell, cell_name
from symbiont_ecology.ecology import DriftDetector
from symbiont_ecology.ecology.routing.allocators import FLOOR, curricula
from symbiont_ecology.tasks.synthetic.family import DEPTHS

CELLS: list[Cell] = [(f"family-{number}", depth) for number in range(12) for depth in DEPTHS]
every_curriculum = pytest.mark.parametrize("kind", curricula.names())


def watched(rates: np.ndarray) -> dict[str, DriftDetector]:
    """Cells that were asked in twelve generations, with these success rates."""
    return {
        cell_name(cell): DriftDetector(tuple((20 * rate, 20) for _ in range(12)))
        for cell, rate in zip(CELLS, rates, strict=True)
    }


def shares(
    kind: str, drift_detectors: dict[str, DriftDetector], rounds: int = 50, count: int = 100
) -> np.ndarray:
    """Which part of an even share each cell gets, ``(cells,)``."""
    curriculum, asked = curricula.build(kind), Counter[Cell]()
    for seed in range(rounds):
        demand = curriculum.demand(CELLS, drift_detectors, count, np.random.default_rng(seed))
        assert len(demand) == count
        asked.update(demand)
    return np.array([asked[cell] for cell in CELLS]) * len(CELLS) / (rounds * count)


@every_curriculum
def test_every_depth_of_every_family_is_asked_about_whatever_was_seen_there(kind: str) -> None:
    for rates in (np.zeros(36), np.ones(36), np.arange(36) < 33, np.arange(36) >= 33):
        assert shares(kind, watched(rates.astype(float))).min() >= FLOOR


@every_curriculum
def test_nothing_is_preferred_where_nothing_is_known_or_all_is_alike(kind: str) -> None:
    np.testing.assert_allclose(shares(kind, {}, rounds=400), 1, atol=0.1)
    np.testing.assert_allclose(shares(kind, watched(np.full(36, 0.5)), rounds=400), 1, atol=0.1)


def test_what_is_not_mastered_is_asked_more_the_less_it_is() -> None:
    found = shares("unmastered", watched(np.tile([0.9, 0.5, 0.1], 12))).reshape(12, 3).mean(axis=0)
    assert found[0] < 0.7 < 0.9 < found[1] < 1.1 < 1.3 < found[2]
