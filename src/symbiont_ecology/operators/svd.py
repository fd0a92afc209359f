"""The weighted mean of what two parents do, as near as the larger parent's rank allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.operators import operators
from symbiont_ecology.registry import Share
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.deltas import combined, truncated


@operators.register("svd")
@dataclass(frozen=True)
class Svd:
    """``linear``, cut to the larger parent's rank where its spectrum is longest (Eckart & Young
    1936): generations of merges do not grow."""

    share: Share = 0.5  # of the first parent, in [0, 1]; the second has the rest
    arity: ClassVar[int] = 2

    def __call__(
        self, parents: Sequence[AdapterWeights], generator: np.random.Generator
    ) -> AdapterWeights:
        """No draw is made."""
        mean = combined(parents, (self.share, 1 - self.share))
        return truncated(mean, max(one.rank for one in parents))
