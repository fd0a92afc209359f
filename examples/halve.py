"""An operator of one's own: a child starts with half of what its parent learned."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.operators import Parents, operators


@operators.register("halve")
@dataclass(frozen=True)
class Halve:
    """Scales ΔW by ``factor``."""

    factor: float = 0.5  # of the parent's ΔW
    arity: ClassVar[int] = 1

    def __call__(self, parents: Parents, generator: np.random.Generator) -> AdapterWeights:
        """The child's weights."""
        parent = parents[0]
        return AdapterWeights(
            parent.layout, parent.rank, self.factor * parent.scaling, parent.vector
        )
