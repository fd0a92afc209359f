"""Who meets which task during a run: bandits over (organelle, cell). One allocator per file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from symbiont_ecology.ecology import Belief, cell_name
from symbiont_ecology.registry import Registry
from symbiont_ecology.types import Cell, OrganelleId


class Allocator(Protocol):
    """A bandit over (organelle, cell): beliefs in, assignments out."""

    @property
    def fade(self) -> float:
        """Part of a belief's counts that is left after each generation with news, in [0, 1]."""

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """Who takes each of the demanded questions (``cells`` names one cell per question).

        ``allowance`` is how many questions each organelle can pay for. Questions that nobody can pay for
        are left out.
        """


def dealt(
    cells: Sequence[Cell],
    allowance: Mapping[OrganelleId, int],
    generator: np.random.Generator,
    pick: Callable[[Sequence[OrganelleId], Cell], int],
) -> list[tuple[OrganelleId, Cell]]:
    """Question by question to whom ``pick`` says, by place among those who can still pay.

    In random order, so that no cell is always served last when energy runs short; who can pay is in the
    order of ids, so that the order of a mapping decides nothing.
    """
    left = {who: allowance[who] for who in sorted(allowance)}
    assigned = []
    for index in generator.permutation(len(cells)):
        able = [who for who, questions in left.items() if questions > 0]
        if not able:
            break
        who = able[pick(able, cells[index])]
        left[who] -= 1
        assigned.append((who, cells[index]))
    return assigned


def believed(
    able: Sequence[OrganelleId], cell: Cell, beliefs: Mapping[OrganelleId, Mapping[str, Belief]]
) -> list[Belief]:
    """What is believed of each of them in a cell; of the unknown, nothing."""
    return [beliefs.get(who, {}).get(cell_name(cell), Belief()) for who in able]


def sampled(known: Sequence[Belief], generator: np.random.Generator) -> np.ndarray:
    """One draw of each success rate from its Beta posterior (Thompson 1933), ``(beliefs,)``."""
    return generator.beta([1 + b.successes for b in known], [1 + b.failures for b in known])


allocators: Registry[Allocator] = Registry("allocator", "symbiont_ecology.routing.allocators")
