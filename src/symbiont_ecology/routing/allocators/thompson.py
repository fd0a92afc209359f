"""Thompson sampling: each question goes to whoever draws the highest believed success (Thompson
1933)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import Allocator, Posteriors, allocators, sampled


@allocators.register("thompson")
@dataclass(frozen=True)
class Thompson(Allocator):
    """Beta posteriors whose counts fade, because organelles learn and yesterday's verdicts age."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """One Beta draw each; the highest takes the question."""
        return int(np.argmax(sampled(known, generator)))
