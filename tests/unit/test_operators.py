"""Operators against arithmetic on dense ΔW, and against the mistakes that are easy to make."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from parents import LAYOUT, deltas, is_close, merged, mixed, parent
from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.operators import Parent, operators

NAMES = [name for name, _, _ in LAYOUT.modules]
MERGES = [name for name in operators.names() if operators[name].arity == 2]
ON_ELEMENTS = {"ties", "dare"}


@pytest.fixture(params=[(1, 1.0, 8, 1.0), (8, 2.0, 3, 0.25)], ids=str)
def parents(request: pytest.FixtureRequest) -> list[Parent]:
    """Two of unequal ranks, once of unequal scalings too."""
    rank, scaling, other_rank, other_scaling = request.param
    return [parent(0, rank, scaling), parent(1, other_rank, other_scaling)]


# What each of them does.


def test_exact_merges_are_what_they_say_on_dense_deltas(parents: list[Parent]) -> None:
    linear = merged("linear", parents, share=0.3)
    assert is_close(linear, mixed(parents, (0.3, 0.7)))
    concatenation = merged("concatenation", parents, decay=0.3)
    assert is_close(concatenation, mixed(parents, [1 / 2**0.3] * 2))
    assert linear.rank == concatenation.rank == sum(one.rank for one in parents)
    svd = merged("svd", parents, share=0.3)
    assert is_close(svd, mixed(parents, (0.3, 0.7)))
    assert svd.rank == 8


def test_svd_is_the_nearest_of_its_rank_to_the_mean() -> None:
    parents = [parent(0, 2), parent(1, 3, 2.0)]
    child, mean = deltas(merged("svd", parents)), mixed(parents, (0.5, 0.5))
    for name in NAMES:
        lost = np.linalg.svd(mean[name], compute_uv=False)[3:]
        assert np.linalg.norm(child[name] - mean[name]) == pytest.approx(
            np.linalg.norm(lost), rel=1e-5
        )


def test_ties_keeps_what_is_large_and_agreed_upon(parents: list[Parent]) -> None:
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


def test_dare_keeps_elements_whole_or_not_at_all(parents: list[Parent]) -> None:
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


def learned(
    seed: int, gradients: dict[str, float], scale: float = 1.0, stretch: float = 1.0
) -> Parent:
    """Whose loss had gradients by ΔW of those lengths, in no particular direction.

    ``scale`` is the unit of squared gradients; ``stretch`` makes A longer and B shorter: neither
    matters.
    """
    made = parent(seed)
    vector, second = made.vector.copy(), np.zeros_like(made.vector)
    for name, a, b, d_in, d_out in LAYOUT.blocks(8):
        vector[a] *= stretch
        vector[b] /= stretch
        of_an_element = gradients[name] ** 2 / (d_in * d_out)
        # The gradient by B is that by ΔW times Aᵀ.
        rows = np.sum(vector[a].reshape(8, d_in) ** 2, axis=1)
        second[b] = scale * np.repeat(of_an_element * rows, d_out)
    return Parent(LAYOUT, 8, 1.0, vector, OptimizerState(9, None, second))


@pytest.mark.parametrize(("scale", "stretch"), [(1.0, 1.0), (1e-6, 1.0), (1.0, 30.0)])
def test_fisher_listens_in_every_module_to_the_parent_that_depends_on_it(
    scale: float, stretch: float
) -> None:
    parents = [
        learned(0, {"wide": 3.0, "tall": 1.0, "square": 0.0}, scale, stretch),
        learned(1, {"wide": 1.0, "tall": 2.0, "square": 0.0}),
    ]
    one, other = map(deltas, parents)
    shares = {"wide": 0.9 / (0.9 + 0.2), "tall": 0.1 / (0.1 + 0.8), "square": 0.5}
    child = merged("fisher", parents)
    expected = {name: at * one[name] + (1 - at) * other[name] for name, at in shares.items()}
    assert is_close(child, expected)


def test_fisher_without_memories_is_the_mean() -> None:
    parents = [parent(0, 1), parent(1, 8, 2.0)]
    assert is_close(merged("fisher", parents), mixed(parents, (0.5, 0.5)))


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


def in_other_coordinates(one: Parent, seed: int) -> Parent:
    """The same ΔW as (B·M, M⁻¹·A), with another well-conditioned M for every module."""
    generator, factors = np.random.default_rng(seed), {}
    for name, a, b in one.factors():
        turn, _ = np.linalg.qr(generator.standard_normal((one.rank, one.rank)))
        m = turn * np.geomspace(0.2, 5, one.rank)
        factors[name] = (np.linalg.solve(m, a), b @ m)
    return Parent(**vars(AdapterWeights.from_factors(one.layout, one.rank, one.scaling, factors)))


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
