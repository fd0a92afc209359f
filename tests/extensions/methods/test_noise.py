"""Noise that is told by a seed: its size, its mirror image, and what a step along it does."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.extensions.methods.noise import Noise, along_b, along_w, mean_of_b, noise_on_b

LAYOUT = AdapterLayout((("narrow", 24, 40), ("wide", 96, 64)))
NORMS = {"narrow": 3.0, "wide": 700.0}
KINDS = pytest.mark.parametrize("rank", [0, 1, 3], ids=["on B", "on W", "on W, rank 3"])


def centre(rank: int = 8, b_std: float = 0.1) -> AdapterWeights:
    return AdapterWeights.random(LAYOUT, rank, 0.5, np.random.default_rng(1), b_std)


def changes(one: AdapterWeights, other: AdapterWeights) -> dict[str, np.ndarray]:
    return {name: one.delta(name) - other.delta(name) for name, _, _ in LAYOUT.modules}


@KINDS
def test_noise_is_a_function_of_its_seed(rank: int) -> None:
    one, same, other = (Noise(seed, 0.1, rank).of(centre(), NORMS) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.vector, same.vector)
    assert not np.array_equal(one.vector, other.vector)


@KINDS
def test_noise_has_its_size_in_every_module(rank: int) -> None:
    sizes: dict[str, list[float]] = {name: [] for name in NORMS}
    for seed in range(40):
        moved = Noise(seed, 0.05, rank).of(centre(), NORMS)
        for name, change in changes(moved, centre()).items():
            sizes[name].append(float(np.linalg.norm(change)) / NORMS[name])
    for found in sizes.values():
        assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.05, rel=0.1)


@KINDS
def test_a_mirror_image_moves_the_other_way(rank: int) -> None:
    there, back = (Noise(3, size, rank).of(centre(), NORMS) for size in (0.1, -0.1))
    for name, change in changes(there, centre()).items():
        np.testing.assert_allclose(change, -changes(back, centre())[name], atol=2e-4)
        assert np.abs(change).max() > 1e-3


def test_noise_on_b_leaves_a_alone() -> None:
    for (_, a, _), (_, before, _) in zip(
        Noise(3, 0.1).of(centre(), NORMS).factors(), centre().factors(), strict=True
    ):
        np.testing.assert_array_equal(a, before)


def test_noise_moves_a_centre_that_is_still_the_host() -> None:
    """Where B is zero, noise on A would do nothing."""
    fresh = centre(b_std=0.0)
    for rank in (0, 1):
        moved = Noise(3, 0.1, rank).of(fresh, NORMS)
        assert all(change.any() for change in changes(moved, fresh).values())


def test_a_step_along_the_noise_of_one_member_is_that_member() -> None:
    member = Noise(9, 0.1)
    direction = mean_of_b([(9, 1.0)], centre())
    moved = along_b(centre(), direction, 0.1, NORMS)
    np.testing.assert_allclose(moved.vector, member.of(centre(), NORMS).vector, atol=1e-6)
    there = along_w(centre(), [(9, 0.1)], 2, NORMS)
    for name, change in changes(there, Noise(9, 0.1, 2).of(centre(), NORMS)).items():
        np.testing.assert_allclose(change, 0.0, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("rank", [0, 1])
def test_worth_times_noise_is_the_gradient(rank: int) -> None:
    """Of a reward that is linear in ΔW, in the mean over seeds: they agree in direction."""
    start, wanted = centre(), np.random.default_rng(2).standard_normal((40, 24))
    shares = []
    for seed in range(3000):
        moved = Noise(seed, 0.01, rank).of(start, NORMS)
        worth = float(np.sum(wanted * changes(moved, start)["narrow"]))
        shares.append((seed, worth))
    if rank:
        there = along_w(start, [(seed, share / 3000) for seed, share in shares], rank, NORMS)
        found = changes(there, start)["narrow"]
        np.testing.assert_array_less(0.7, _cosine(found, wanted))
    else:
        there = along_b(start, mean_of_b(shares, start), 0.01, NORMS)
        # B moves along A alone, so what is wanted is seen through the rows of A.
        a = next(a for name, a, _ in start.factors() if name == "narrow")
        found = changes(there, start)["narrow"]
        np.testing.assert_array_less(0.9, _cosine(found, wanted @ a.T @ a))


def test_members_of_a_population_have_noise_of_their_own() -> None:
    one, other = (np.concatenate(list(noise_on_b(seed, centre()).values())) for seed in (1, 2))
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.1


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sum(one * other) / np.linalg.norm(one) / np.linalg.norm(other))
