"""What is asked about in a generation: how its questions are dealt out to cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.types import Cell, cell_name
from symbiont_ecology.ecology import DriftDetector

Cells = Sequence[Cell]
Detectors = Mapping[str, DriftDetector]
"""By cell name."""


class Curriculum(Protocol):
    """Frozen. It sees the last verdicts of every cell, and says where questions teach the most."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """``count`` questions, one cell each, in the order of ``cells``."""


curricula: Registry[Curriculum] = Registry("curriculum", "symbiont_ecology.ecology.routing")


@curricula.register("even")
@dataclass(frozen=True)
class Even:
    """Every cell asks the same number of questions, however well it is mastered."""

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """No draw is made while ``count`` is a multiple of the cells."""
        each, rest = divmod(count, len(cells))
        lucky = set(generator.permutation(len(cells))[:rest]) if rest else set()
        return [cell for i, cell in enumerate(cells) for _ in range(each + (i in lucky))]


FLOOR = 0.2
"""Part of an even share that every cell gets at least: what is never asked cannot be seen to
change."""


@curricula.register("unmastered")
@dataclass(frozen=True)
class Unmastered:
    """In proportion to 1 − p of a cell's success p, beside ``FLOOR``: more questions where more is
    to be won.

    Shares are rounded by one draw (systematic sampling), so each is met to within one question.
    """

    def demand(
        self, cells: Cells, detectors: Detectors, count: int, generator: Generator
    ) -> list[Cell]:
        """By what was seen lately; one right and one wrong are added, so that nothing is beyond
        doubt."""
        latest = [detectors.get(cell_name(cell), DriftDetector()).lately for cell in cells]
        worth = np.array([1 - success for success in latest]) + 1e-9
        shares = FLOOR / len(cells) + (1 - FLOOR) * worth / worth.sum()
        places = np.searchsorted(np.cumsum(shares), (generator.random() + np.arange(count)) / count)
        return [cells[min(int(place), len(cells) - 1)] for place in places]
