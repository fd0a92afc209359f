"""More questions where more is to be won: in proportion to how often answers are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from symbiont_ecology.ecology import DriftDetector, cell_name
from symbiont_ecology.routing.curricula import Cells, Detectors, curricula, dealt
from symbiont_ecology.types import Cell


@curricula.register("unmastered")
@dataclass(frozen=True)
class Unmastered:
    """In proportion to 1 − p of a cell's success p."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """By what was seen lately; one right and one wrong are added, so that nothing is beyond
        doubt."""
        known = [detectors.get(cell_name(cell), DriftDetector()) for cell in cells]
        return dealt(cells, np.array([1 - watch.lately for watch in known]), count, generator)
