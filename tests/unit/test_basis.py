"""Bases: the few directions in which examples differ most."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology.ecology.users import DIRECTIONS, Basis


def drawn(kinds: int, each: int, noise: float = 0.3, wide: int = 64) -> np.ndarray:
    """Examples of some kinds, one kind after the other, ``(kinds · each, wide)``."""
    draw = np.random.default_rng(7)
    means = np.repeat(draw.standard_normal((kinds, wide)), each, axis=0)
    return 5.0 + means + noise * draw.standard_normal(means.shape)


def test_a_new_answer_lies_near_those_of_its_kind() -> None:
    examples = drawn(kinds=4, each=8)
    basis = Basis.of(examples[::2])
    places = np.array([basis.coordinates(example) for example in examples[1::2]])
    assert np.linalg.norm(places, axis=1) == pytest.approx(1.0)
    kinds = np.repeat(np.arange(4), 4)
    cosines, alike = places @ places.T, kinds[:, None] == kinds
    assert cosines[alike].min() > 0.8
    assert cosines[~alike].max() < 0.2


@pytest.mark.parametrize(("count", "directions"), [(1, 0), (2, 1), (5, 4), (20, DIRECTIONS)])
def test_few_examples_have_few_directions(count: int, directions: int) -> None:
    examples = np.random.default_rng(0).standard_normal((count, 32))
    basis = Basis.of(examples)
    assert basis.directions.shape == (DIRECTIONS, 32)
    assert np.linalg.norm(basis.directions, axis=1) == pytest.approx(
        [1.0] * directions + [0.0] * (DIRECTIONS - directions), abs=1e-5
    )
    lengths = [np.linalg.norm(basis.coordinates(example)) for example in examples]
    assert lengths == pytest.approx([1.0 if directions else 0.0] * count)


def test_numbers_that_are_not_finite_say_nothing_of_the_others() -> None:
    examples = drawn(kinds=2, each=6)
    damaged = np.concatenate([examples, np.full((1, 64), np.nan)])
    assert Basis.of(damaged).directions == pytest.approx(Basis.of(examples).directions)
    nowhere = Basis.of(damaged[-1:])
    assert not nowhere.directions.any()
    assert not nowhere.coordinates(examples[0]).any()
