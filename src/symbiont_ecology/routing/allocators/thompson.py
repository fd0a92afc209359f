"""Thompson sampling: each question goes to whoever draws the highest believed success (Thompson 1933)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import Belief
from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import allocators, believed, dealt, sampled
from symbiont_ecology.types import Cell, OrganelleId


@allocators.register("thompson")
@dataclass(frozen=True)
class Thompson:
    """Beta posteriors whose counts fade, because organelles learn and yesterday's verdicts age."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """One Beta draw per (question, organelle that can still pay); the highest takes the question."""

        def pick(able: Sequence[OrganelleId], cell: Cell) -> int:
            return int(np.argmax(sampled(believed(able, cell, beliefs), generator)))

        return dealt(cells, allowance, generator, pick)
