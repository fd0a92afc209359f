"""Noise that is told by a seed: its size, its mirror image, and what a step along it does."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.extensions.methods.noise import Noise, along_b, mean_of_b

LAYOUT = AdapterLayout((("narrow", 24, 40), ("wide", 96, 64)))
NORMS = {"narrow": 3.0, "wide": 700.0}


def centre(rank: int = 8, b_std: float = 0.1) -> AdapterWeights:
    return AdapterWeights.random(LAYOUT, rank, 0.5, np.random.default_rng(1), b_std)


def changes(one: AdapterWeights, other: AdapterWeights) -> dict[str, np.ndarray]:
    return {name: one.delta(name) - other.delta(name) for name, _, _ in LAYOUT.modules}


def test_noise_is_a_function_of_its_seed_and_leaves_a_alone() -> None:
    one, same, other = (Noise(seed, 0.1).of(centre(), NORMS) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.vector, same.vector)
    assert not np.array_equal(one.vector, other.vector)
    for (_, a, _), (_, before, _) in zip(one.factors(), centre().factors(), strict=True):
        np.testing.assert_array_equal(a, before)


@pytest.mark.parametrize("b_std", [0.1, 0.0], ids=["learned", "still the host"])
def test_noise_has_its_size_in_every_module(b_std: float) -> None:
    sizes: dict[str, list[float]] = {name: [] for name in NORMS}
    for seed in range(40):
        moved = Noise(seed, 0.05).of(centre(b_std=b_std), NORMS)
        for name, change in changes(moved, centre(b_std=b_std)).items():
            sizes[name].append(float(np.linalg.norm(change)) / NORMS[name])
    for found in sizes.values():
        assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.05, rel=0.1)


def test_a_mirror_image_moves_the_other_way() -> None:
    there, back = (Noise(3, size).of(centre(), NORMS) for size in (0.1, -0.1))
    for name, change in changes(there, centre()).items():
        np.testing.assert_allclose(change, -changes(back, centre())[name], atol=2e-4)
        assert np.abs(change).max() > 1e-3


def test_a_step_along_the_noise_of_one_member_is_that_member() -> None:
    moved = along_b(centre(), mean_of_b([(9, 1.0)], centre()), 0.1, NORMS)
    np.testing.assert_allclose(moved.vector, Noise(9, 0.1).of(centre(), NORMS).vector, atol=1e-6)


def test_worth_times_noise_is_the_gradient() -> None:
    """Of a reward that is linear in ΔW, in the mean over seeds: they agree in direction."""
    start, wanted = centre(), np.random.default_rng(2).standard_normal((40, 24))
    shares = []
    for seed in range(3000):
        moved = Noise(seed, 0.01).of(start, NORMS)
        shares.append((seed, float(np.sum(wanted * changes(moved, start)["narrow"]))))
    there = along_b(start, mean_of_b(shares, start), 0.01, NORMS)
    # B moves along A alone, so what is wanted is seen through the rows of A.
    a = next(a for name, a, _ in start.factors() if name == "narrow")
    found, seen = changes(there, start)["narrow"], wanted @ a.T @ a
    assert np.sum(found * seen) / np.linalg.norm(found) / np.linalg.norm(seen) > 0.9
