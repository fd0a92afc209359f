"""Optimism: each question goes to whoever could be the best (discounted UCB, Garivier & Moulines 2011)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat

from symbiont_ecology.ecology import Belief, cell_name
from symbiont_ecology.routing.allocators import allocators, believed, dealt
from symbiont_ecology.types import Cell, OrganelleId


@allocators.register("ucb")
@dataclass(frozen=True)
class UpperBound:
    """Believed success plus a bonus for what has been tried little, on counts that fade."""

    bonus: NonNegativeFloat = 0.5  # weight of √(log n ÷ nᵢ), >= 0
    fade: ClassVar[float] = 0.8

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """Question by question; one that was just given counts as tried, and ties are drawn."""
        tried = {
            (who, name): belief.successes + belief.failures
            for who in allowance
            for name, belief in beliefs.get(who, {}).items()
        }

        def pick(able: Sequence[OrganelleId], cell: Cell) -> int:
            name = cell_name(cell)
            counts = np.array([1 + tried.get((who, name), 0.0) for who in able])
            means = np.array([belief.mean for belief in believed(able, cell, beliefs)])
            bounds = means + self.bonus * np.sqrt(np.log(counts.sum()) / counts)
            bounds += 1e-9 * generator.random(len(able))
            winner = int(np.argmax(bounds))
            tried[able[winner], name] = tried.get((able[winner], name), 0.0) + 1
            return winner

        return dealt(cells, allowance, generator, pick)
