"""Territories: most questions of a cell go to who is surely good at them, a few to whoever may be better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import Belief, cell_name
from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import allocators
from symbiont_ecology.types import Cell, OrganelleId


@allocators.register("epsilon_greedy")
@dataclass(frozen=True)
class EpsilonGreedy:
    """A cell belongs to whoever has the highest lower bound of success there: a standard deviation below the
    mean (exploring by ε: Sutton & Barto 2018, 2.2).

    Learners that share a cell learn half as fast each, so there is one owner at a time; a newcomer takes over
    by what it shows in the questions that are set aside for exploring.
    """

    explore: Share = 0.1  # part of the questions that goes to others than the owner, by Thompson sampling
    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """The owner, or with some luck one of the others, among those who can still pay."""
        left = {who: allowance[who] for who in sorted(allowance)}  # the order of a mapping decides nothing
        assigned = []
        # In random order, so that no cell is always served last when energy runs short.
        for index in generator.permutation(len(cells)):
            cell = cells[index]
            able = [who for who, questions in left.items() if questions > 0]
            if not able:
                break
            known = [beliefs.get(who, {}).get(cell_name(cell), Belief()) for who in able]
            owner = int(np.argmax([belief.mean - belief.std for belief in known]))
            if len(able) > 1 and generator.random() < self.explore:
                draws = generator.beta([1 + b.successes for b in known], [1 + b.failures for b in known])
                draws[owner] = -1.0
                owner = int(np.argmax(draws))
            left[able[owner]] -= 1
            assigned.append((able[owner], cell))
        return assigned

    def update(self, belief: Belief, rewards: Sequence[float]) -> Belief:
        """Old counts fade, new verdicts are added."""
        return belief.faded(self.fade, rewards)
