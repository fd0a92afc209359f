"""All cells alike."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.routing.curricula import Cells, Detectors, curricula
from symbiont_ecology.types import Cell


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
