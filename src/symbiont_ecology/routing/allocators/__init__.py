"""Who meets which task during a run: bandits over (organelle, cell). One allocator per file."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.random import Generator

from symbiont_ecology.ecology import SuccessPosterior, cell_name
from symbiont_ecology.registry import Registry
from symbiont_ecology.types import Cell, OrganelleId

Posteriors = Sequence[SuccessPosterior]
UNKNOWN = SuccessPosterior()
"""What is believed of who has shown nothing yet."""


class Allocator(ABC):
    """A bandit over (organelle, cell), frozen: beliefs in, assignments out. Each has its own
    ``pick``."""

    @property
    @abstractmethod
    def fade(self) -> float:
        """Part of a belief's counts that is left after each generation with news, in [0, 1]."""

    @abstractmethod
    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """Who takes a question of a cell, by place among those who can still pay.

        ``known`` is what is believed of each of them there (of the unknown, nothing), ``given`` how
        many questions of the cell each of them was given in this generation.
        """

    def assign(
        self,
        cells: Sequence[Cell],
        posteriors: Mapping[OrganelleId, Mapping[str, SuccessPosterior]],
        allowance: Mapping[OrganelleId, int],
        generator: Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """Who takes each of the demanded questions (``cells`` names one cell per question).

        ``allowance`` is how many questions each organelle can pay for. Questions that nobody can
        pay for are left out. In random order, so that no cell is always served last when energy
        runs short; who can pay is in the order of ids, so that the order of a mapping decides
        nothing.
        """
        left, given = dict(sorted(allowance.items())), Counter[tuple[OrganelleId, Cell]]()
        assigned = []
        for index in generator.permutation(len(cells)):
            able = [organelle_id for organelle_id, questions in left.items() if questions > 0]
            if not able:
                break
            cell, name = cells[index], cell_name(cells[index])
            known = [posteriors.get(organelle_id, {}).get(name, UNKNOWN) for organelle_id in able]
            counts = [given[organelle_id, cell] for organelle_id in able]
            organelle_id = able[self.pick(known, counts, generator)]
            left[organelle_id] -= 1
            given[organelle_id, cell] += 1
            assigned.append((organelle_id, cell))
        return assigned


def sampled(known: Posteriors, generator: Generator) -> np.ndarray:
    """One draw of each success rate from its Beta posterior (Thompson 1933), ``(beliefs,)``."""
    return generator.beta([1 + b.successes for b in known], [1 + b.failures for b in known])


allocators: Registry[Allocator] = Registry("allocator", "symbiont_ecology.routing.allocators")
