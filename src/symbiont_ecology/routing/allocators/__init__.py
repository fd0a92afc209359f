"""Who meets which task during a run: bandits over (organelle, cell). One allocator per file."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from symbiont_ecology.ecology import Belief
from symbiont_ecology.registry import Registry
from symbiont_ecology.types import Cell, OrganelleId


class Allocator(Protocol):
    """A bandit over (organelle, cell): beliefs in, assignments out."""

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

    def update(self, belief: Belief, rewards: Sequence[float]) -> Belief:
        """The belief after a generation's verdicts."""


allocators: Registry[Allocator] = Registry("allocator", "symbiont_ecology.routing.allocators")
