"""Adapter weights as values: layout, factors, padding."""

from __future__ import annotations

import numpy as np
import pytest

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights

LAYOUT = AdapterLayout((("layers.0.q", 4, 6), ("layers.0.o", 6, 4)))


def test_blocks_cover_the_vector_without_gap_or_overlap() -> None:
    covered = [
        index
        for _, a, b, _, _ in LAYOUT.blocks(3)
        for part in (a, b)
        for index in range(part.start, part.stop)
    ]
    assert covered == list(range(LAYOUT.size(3)))


def test_factors_give_back_what_was_packed() -> None:
    generator = np.random.default_rng(0)
    factors = {
        name: (generator.standard_normal((2, d_in)), generator.standard_normal((d_out, 2)))
        for name, d_in, d_out in LAYOUT.modules
    }
    weights = AdapterWeights.from_factors(LAYOUT, 2, 0.5, factors)
    for name, a, b in weights.factors():
        np.testing.assert_allclose(a, factors[name][0], rtol=1e-6)
        np.testing.assert_allclose(b, factors[name][1], rtol=1e-6)
        np.testing.assert_allclose(
            weights.delta(name), 0.5 * factors[name][1] @ factors[name][0], rtol=1e-5
        )


@pytest.mark.parametrize("vector", [np.zeros(3, dtype=np.float32), np.zeros(40, dtype=np.float64)])
def test_a_vector_of_another_length_or_type_is_refused(vector: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected a float32 vector of 40"):
        AdapterWeights(LAYOUT, 2, 1.0, vector)
