"""Parents to merge, and what dense arithmetic makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.adapters.operators import operators

LAYOUT = AdapterLayout((("wide", 12, 5), ("tall", 5, 12), ("square", 6, 6)))
"""No ΔW here has a rank above 6: at rank 8 no operator loses anything by cutting."""


def parent(
    seed: int,
    rank: int = 8,
    scaling: float = 1.0,
    b_std: float = 0.3,
    layout: AdapterLayout = LAYOUT,
) -> AdapterWeights:
    return AdapterWeights.random(layout, rank, scaling, np.random.default_rng(seed), b_std)


def merged(
    name: str, parents: Sequence[AdapterWeights], seed: int = 0, **knobs: Any
) -> AdapterWeights:
    return operators.build({"kind": name, **knobs})(parents, np.random.default_rng(seed))


def deltas(adapter: AdapterWeights) -> dict[str, np.ndarray]:
    """Straight from the definition, in float64."""
    wide = ((name, a.astype(np.float64), b.astype(np.float64)) for name, a, b in adapter.factors())
    return {name: adapter.scaling * b @ a for name, a, b in wide}


def is_close(found: AdapterWeights, expected: dict[str, np.ndarray], within: float = 1e-5) -> bool:
    own = deltas(found)
    return all(np.abs(own[name] - expected[name]).max() <= within for name in expected)


def mixed(parents: Sequence[AdapterWeights], shares: Sequence[float]) -> dict[str, np.ndarray]:
    dense = [deltas(one) for one in parents]
    return {
        name: np.asarray(sum(share * one[name] for share, one in zip(shares, dense, strict=True)))
        for name in dense[0]
    }
