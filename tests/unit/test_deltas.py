"""Arithmetic on ΔW by its factors is what it is on ΔW itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.deltas import (
    SPARE,
    combined,
    dense,
    from_dense,
    grown,
    grown_optimizer_state,
    shares,
    truncated,
)

LAYOUT = AdapterLayout((("wide", 12, 5), ("tall", 5, 12), ("smaller than ranks", 3, 2)))
NAMES = [name for name, _, _ in LAYOUT.modules]
SHARE = st.floats(-2, 2)
RNG = np.random.default_rng


@st.composite
def adapters(draw: st.DrawFn) -> AdapterWeights:
    """Of any rank and scaling; some do nothing, some have a smaller rank than they state."""
    rank, scaling = draw(st.integers(1, 8)), draw(st.sampled_from((0.25, 1.0, 7.0)))
    b_std, seed = draw(st.sampled_from((0.0, 1.0))), draw(st.integers(0, 2**32))
    made = AdapterWeights.random(LAYOUT, rank, scaling, np.random.default_rng(seed), b_std)
    if draw(st.booleans()):
        return made
    repeated = {name: (np.tile(a[:1], (rank, 1)), b) for name, a, b in made.factors()}
    return AdapterWeights.from_factors(LAYOUT, rank, scaling, repeated)


def deltas_of(adapter: AdapterWeights) -> Iterator[np.ndarray]:
    """Straight from the definition, in float64."""
    for _, a, b in adapter.factors():
        yield adapter.scaling * b.astype(np.float64) @ a.astype(np.float64)


def error(found: AdapterWeights, expected: list[np.ndarray]) -> float:
    """Largest error of any element, against the largest element."""
    pairs = zip(deltas_of(found), expected, strict=True)
    size = max(1.0, *(float(np.abs(one).max()) for one in expected))
    return max(float(np.abs(one - other).max()) for one, other in pairs) / size


@given(adapters(), adapters(), SHARE)
def test_combining_is_arithmetic_on_deltas(
    one: AdapterWeights, other: AdapterWeights, share: float
) -> None:
    found = combined([one, other], share)
    pairs = zip(deltas_of(one), deltas_of(other), strict=True)
    assert error(found, [share * (a + b) for a, b in pairs]) < 1e-5
    assert found.rank == one.rank + other.rank


@given(adapters(), st.integers(1, 8))
def test_truncating_loses_the_smallest_singular_values_and_no_more(
    adapter: AdapterWeights, rank: int
) -> None:
    found = truncated(adapter, rank)
    assert found.rank == rank
    for after, before in zip(deltas_of(found), deltas_of(adapter), strict=True):
        lost = np.linalg.svd(before, compute_uv=False)[rank:]
        assert np.linalg.norm(before - after) == pytest.approx(
            np.linalg.norm(lost), rel=1e-5, abs=1e-4
        )


@given(adapters())
def test_shares_are_those_of_the_singular_values_of_deltas(adapter: AdapterWeights) -> None:
    expected, counted = np.zeros(8), 0
    for delta in deltas_of(adapter):
        if delta.any():
            energy = np.square(np.linalg.svd(delta, compute_uv=False))[: adapter.rank]
            expected[: len(energy)] += energy / energy.sum()
            counted += 1
    assert shares(adapter) == pytest.approx(expected[: adapter.rank] / max(counted, 1), abs=1e-6)


@given(adapters(), adapters())
def test_dense_deltas_come_back_as_they_went(one: AdapterWeights, other: AdapterWeights) -> None:
    stacked = list(dense([one, other]))
    assert [name for name, _ in stacked] == NAMES
    for place, adapter in enumerate((one, other)):
        found = from_dense(LAYOUT, 8, [(name, deltas[place]) for name, deltas in stacked])
        assert error(found, list(deltas_of(adapter))) < 1e-5


# What is spare.

LENGTHS = [1.0, 1.1 * SPARE, 0.9 * SPARE]
"""Of directions in a factor, against the first: the last is rounding, the one before is not."""


@pytest.mark.parametrize("length", [1.0, 1e-3, 1e3])
def test_a_direction_is_spare_up_to_a_millionth_of_the_strongest(length: float) -> None:
    layout = AdapterLayout((("square", 4, 4),))
    delta = np.diag(np.square([length * one for one in LENGTHS] + [0.0]))
    ((_, a, b),) = from_dense(layout, 4, [("square", delta)]).factors()
    lengths = length * np.array(LENGTHS[:2])
    assert SPARE == 1e-6
    assert np.linalg.norm(a, axis=1) == pytest.approx([*lengths, 1.0, 1.0])
    assert np.linalg.norm(b, axis=0) == pytest.approx([*lengths, 0.0, 0.0])


# Growing.


@given(adapters(), st.integers(0, 4), st.integers(0, 9))
def test_who_grows_does_what_it_did_and_can_learn_more(
    adapter: AdapterWeights, more: int, seed: int
) -> None:
    rank = adapter.rank + more
    found = grown(adapter, rank, RNG(seed))
    assert (found.layout, found.rank, found.scaling) == (LAYOUT, rank, adapter.scaling)
    draw = RNG(seed)
    pairs = zip(adapter.factors(), found.factors(), strict=True)
    for (_, a, b), (_, new_a, new_b) in pairs:
        drawn = draw.standard_normal((more, a.shape[1]), dtype=np.float32)
        assert new_a[: adapter.rank].tobytes() == a.tobytes()
        assert (new_b[:, : adapter.rank] == b).all()
        assert not new_b[:, adapter.rank :].any()  # what is new does nothing yet
        assert new_a[adapter.rank :] == pytest.approx(drawn / a.shape[1] ** 0.5, rel=1e-6)
    for name in NAMES:
        assert found.delta(name) == pytest.approx(adapter.delta(name), rel=1e-4, abs=1e-5)


@given(adapters(), st.integers(0, 4))
def test_moments_grow_with_their_adapter(adapter: AdapterWeights, more: int) -> None:
    rank, notes = adapter.rank + more, {"baseline": 0.5}
    first, second = adapter.vector.copy(), adapter.vector**2
    before = OptimizerState(7, first, second, notes)
    found = grown_optimizer_state(before, adapter, rank)
    assert (found.step, found.notes) == (7, notes)
    for moments, made in ((first, found.first), (second, found.second)):
        assert made is not None
        held = AdapterWeights(LAYOUT, adapter.rank, 1.0, moments)
        new = AdapterWeights(LAYOUT, rank, 1.0, made)
        for (_, a, b), (_, new_a, new_b) in zip(held.factors(), new.factors(), strict=True):
            assert (new_a[: adapter.rank] == a).all()
            assert (new_b[:, : adapter.rank] == b).all()
            assert not new_a[adapter.rank :].any()
            assert not new_b[:, adapter.rank :].any()
    young = OptimizerState(2, None, None, notes)
    assert grown_optimizer_state(young, adapter, rank) == young
