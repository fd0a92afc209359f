"""All cells alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import DriftDetector
from symbiont_ecology.routing.curricula import curricula
from symbiont_ecology.types import Cell


@curricula.register("even")
@dataclass(frozen=True)
class Even:
    """Every cell asks the same number of questions, however well it is mastered."""

    def demand(
        self,
        cells: Sequence[Cell],
        drift_detectors: Mapping[str, DriftDetector],
        count: int,
        generator: np.random.Generator,
    ) -> list[Cell]:
        """No draw is made while ``count`` is a multiple of the cells."""
        each, rest = divmod(count, len(cells))
        more = (
            {cells[index] for index in generator.permutation(len(cells))[:rest]} if rest else set()
        )
        return [cell for cell in cells for _ in range(each + (cell in more))]
