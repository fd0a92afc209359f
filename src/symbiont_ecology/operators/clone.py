"""No variation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.operators import operators
from symbiont_ecology.weights import AdapterWeights


@operators.register("clone")
@dataclass(frozen=True)
class Clone:
    """The parent's weights. What learning changes within a life leaves nothing that noise at birth
    would add (docs/log.md), so this is how an ecology breeds unless it is told otherwise."""

    arity: ClassVar[int] = 1

    def __call__(
        self, parents: Sequence[AdapterWeights], generator: np.random.Generator
    ) -> AdapterWeights:
        """No draw is made."""
        (parent,) = parents
        return AdapterWeights(parent.layout, parent.rank, parent.scaling, parent.vector)
