"""Thompson sampling: each question goes to whoever draws the highest believed success (Thompson 1933)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import Belief, cell_name
from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import allocators
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
        left = {who: allowance[who] for who in sorted(allowance)}  # the order of a mapping decides nothing
        assigned = []
        # In random order, so that no cell is always served last when energy runs short.
        for index in generator.permutation(len(cells)):
            cell = cells[index]
            able = [who for who, questions in left.items() if questions > 0]
            if not able:
                break
            known = [beliefs.get(who, {}).get(cell_name(cell), Belief()) for who in able]
            draws = generator.beta([1 + b.successes for b in known], [1 + b.failures for b in known])
            winner = able[int(np.argmax(draws))]
            left[winner] -= 1
            assigned.append((winner, cell))
        return assigned

    def update(self, belief: Belief, rewards: Sequence[float]) -> Belief:
        """Old counts fade, new verdicts are added."""
        return belief.faded(self.fade, rewards)
