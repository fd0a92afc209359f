"""What is asked about in a generation: how its questions are dealt out to cells. One curriculum per
file."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.random import Generator

from symbiont_ecology.ecology import DriftDetector
from symbiont_ecology.registry import Registry
from symbiont_ecology.types import Cell

Cells = Sequence[Cell]
Detectors = Mapping[str, DriftDetector]
"""By cell name."""


class Curriculum(Protocol):
    """Frozen. It sees the last verdicts of every cell, and says where questions teach the most."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """``count`` questions, one cell each, in the order of ``cells``."""


FLOOR = 0.2
"""Part of an even share that every cell gets at least: what is never asked cannot be seen to
change."""


def dealt(cells: Cells, worth: np.ndarray, count: int, generator: Generator) -> list[Cell]:
    """``count`` questions in proportion to what cells are worth, beside ``FLOOR``.

    Shares are rounded by one draw (systematic sampling), so each is met to within one question.
    """
    worth = worth + 1e-9
    shares = FLOOR / len(cells) + (1 - FLOOR) * worth / worth.sum()
    places = np.searchsorted(np.cumsum(shares), (generator.random() + np.arange(count)) / count)
    return [cells[min(int(place), len(cells) - 1)] for place in places]


curricula: Registry[Curriculum] = Registry("curriculum", "symbiont_ecology.routing.curricula")
