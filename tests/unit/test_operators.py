"""Operators against arithmetic on dense ΔW, and against the mistakes that are easy to make."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from parents import LAYOUT, deltas, is_close, merged, mixed, parent
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.operators import operators

NAMES = [name for name, _, _ in LAYOUT.modules]
MERGES = [name for name in operators.names() if operators[name].arity == 2]
ON_ELEMENTS = {"ties", "dare"}


@pytest.fixture(params=[(1, 1.0, 8, 1.0), (8, 2.0, 3, 0.25)], ids=str)
def parents(request: pytest.FixtureRequest) -> list[AdapterWeights]:
    """Two of unequal ranks, once of unequal scalings too."""
    rank, scaling, other_rank, other_scaling = request.param
    return [parent(0, rank, scaling), parent(1, other_rank, other_scaling)]


# What each of them does.


def test_exact_merges_are_what_they_say_on_dense_deltas(parents: list[AdapterWeights]) -> None:
    concatenation = merged("concatenation", parents, decay=0.3)
    assert is_close(concatenation, mixed(parents, [1 / 2**0.3] * 2))
    assert concatenation.rank == sum(one.rank for one in parents)
    svd = merged("svd", parents)
    assert is_close(svd, mixed(parents, (0.5, 0.5)))
    assert svd.rank == 8


def test_svd_is_the_nearest_of_its_rank_to_the_mean() -> None:
    parents = [parent(0, 2), parent(1, 3, 2.0)]
    child, mean = deltas(merged("svd", parents)), mixed(parents, (0.5, 0.5))
    for name in NAMES:
        lost = np.linalg.svd(mean[name], compute_uv=False)[3:]
        assert np.linalg.norm(child[name] - mean[name]) == pytest.approx(
            np.linalg.norm(lost), rel=1e-5
        )


def test_ties_keeps_what_is_large_and_agreed_upon(parents: list[AdapterWeights]) -> None:
    one, other = map(deltas, parents)
    expected = {}
    for name in NAMES:
        values = [one[name].ravel(), other[name].ravel()]
        for value in values:
            value[np.argsort(np.abs(value))[: len(value) - int(0.4 * len(value))]] = 0.0
        expected[name] = np.zeros_like(values[0])
        for place, pair in enumerate(zip(*values, strict=True)):
            agree = [value for value in pair if value * sum(pair) > 0]
            expected[name][place] = np.mean(agree) if agree else 0.0
        expected[name] = expected[name].reshape(one[name].shape)
    assert is_close(merged("ties", parents, density=0.4), expected)


def test_dare_keeps_elements_whole_or_not_at_all(parents: list[AdapterWeights]) -> None:
    one, other = map(deltas, parents)
    children = [deltas(merged("dare", parents, seed, density=0.25)) for seed in range(500)]
    for name in NAMES:
        found = np.stack([child[name] for child in children])
        choices = itertools.product((0, 2), repeat=2)
        might = [first * one[name] + second * other[name] for first, second in choices]
        assert np.abs(found[:, None] - np.stack(might)).min(axis=1).max() < 1e-5
        error = found.std(axis=0) / np.sqrt(len(children))
        gap = np.abs(found.mean(axis=0) - (one[name] + other[name]) / 2)
        assert (gap <= 5 * error + 1e-5).all()
    assert is_close(merged("dare", parents, density=1.0), mixed(parents, (0.5, 0.5)))


def test_svd_noise_changes_how_much_and_not_what() -> None:
    one = parent(0, 4, 2.0, layout=AdapterLayout((("big", 80, 60),)))
    child = merged("svd_noise", [one], sigma=0.1)
    ((_, a, b, _, _),) = one.layout.blocks(4)
    assert np.array_equal(child.vector[a], one.vector[a])
    assert not np.array_equal(child.vector[b], one.vector[b])
    u, s, v = np.linalg.svd(one.delta("big").astype(np.float64), full_matrices=False)
    within = u[:, :4].T @ child.delta("big") @ v[:4].T
    assert np.abs(within - np.diag(np.diag(within))).max() < 1e-5
    assert np.linalg.norm(within) == pytest.approx(np.linalg.norm(child.delta("big")), rel=1e-6)
    children = [merged("svd_noise", [one], seed, sigma=0.1).delta("big") for seed in range(300)]
    ratios = [np.log(np.diag(u[:, :4].T @ child @ v[:4].T) / s[:4]) for child in children]
    assert np.mean(ratios) == pytest.approx(0.0, abs=0.01)
    assert np.std(ratios) == pytest.approx(0.1, rel=0.1)
    assert np.array_equal(merged("svd_noise", [one], sigma=0.0).vector, one.vector)


# What all of them keep to.


@pytest.mark.parametrize("name", sorted({*MERGES, "svd_noise"} - ON_ELEMENTS))
def test_a_merge_of_equals_is_their_equal(name: str) -> None:
    twins = [parent(0, 3, 2.0)] * operators[name].arity
    knobs = {"concatenation": {"decay": 1.0}, "svd_noise": {"sigma": 0.0}}
    operator = operators.build({"kind": name, **knobs.get(name, {})})
    assert is_close(operator(twins, np.random.default_rng(0)), deltas(twins[0]))


@pytest.mark.parametrize("name", operators.names())
@pytest.mark.parametrize("ranks", [(4, 2), (2, 4)])
def test_every_direction_of_a_child_can_learn(name: str, ranks: tuple[int, int]) -> None:
    """Where a row of A and its column of B are both zero, every gradient is zero for ever."""
    family = [parent(0, ranks[0], b_std=0.0), parent(1, ranks[1])]
    for parents in (family, family[::-1], [family[0]] * 2):
        child = merged(name, parents[: operators[name].arity])
        for _, a, b in child.factors():
            can_learn = a.any(axis=1) | b.any(axis=0)
            assert can_learn[: min(child.rank, a.shape[1], b.shape[0])].all()


@pytest.mark.parametrize("name", MERGES)
def test_a_parent_that_does_nothing_leaves_a_part_of_the_other(name: str) -> None:
    one, nothing = parent(0, 8), parent(1, 2, b_std=0.0)
    child, whole = deltas(merged(name, [one, nothing])), deltas(one)
    if name not in {*ON_ELEMENTS, "directions", "elementwise"}:
        for module in NAMES:
            share = np.sum(child[module] * whole[module]) / np.sum(whole[module] ** 2)
            assert 0 <= share <= 1 + 1e-6
            assert np.abs(child[module] - share * whole[module]).max() < 1e-5


def in_other_coordinates(one: AdapterWeights, seed: int) -> AdapterWeights:
    """The same ΔW as (B·M, M⁻¹·A), with another well-conditioned M for every module."""
    generator, factors = np.random.default_rng(seed), {}
    for name, a, b in one.factors():
        turn, _ = np.linalg.qr(generator.standard_normal((one.rank, one.rank)))
        m = turn * np.geomspace(0.2, 5, one.rank)
        factors[name] = (np.linalg.solve(m, a), b @ m)
    return AdapterWeights.from_factors(one.layout, one.rank, one.scaling, factors)


@pytest.mark.parametrize("name", sorted({*operators.names()} - {"gaussian", "elementwise"}))
@pytest.mark.parametrize("seed", range(3))
def test_a_child_does_not_depend_on_how_its_parents_are_factored(name: str, seed: int) -> None:
    parents = [parent(seed, 3, 2.0), parent(seed + 9, 5)][: operators[name].arity]
    others = [in_other_coordinates(one, seed) for one in parents]
    child, other = merged(name, parents, seed), merged(name, others, seed)
    assert not np.allclose(parents[0].vector, others[0].vector, atol=0.1)
    assert is_close(other, deltas(child))


@pytest.mark.parametrize("name", sorted({*operators.names()} - ON_ELEMENTS))
def test_operators_on_factors_never_make_a_dense_delta(name: str) -> None:
    large = AdapterLayout((("large", 8000, 8000),))
    parents = [parent(seed, 2, layout=large) for seed in range(operators[name].arity)]
    tracemalloc.start()
    merged(name, parents)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8000 * 8000 * 4 / 20
