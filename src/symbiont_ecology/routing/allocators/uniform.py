"""Control: anyone who can pay takes a question, whatever is known of anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.ecology import Belief
from symbiont_ecology.routing.allocators import allocators, dealt
from symbiont_ecology.types import Cell, OrganelleId

FADE = 0.8
"""Part of a count that is left after each generation with news; beliefs serve the archive alone here."""


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform:
    """Well mixed: skill decides who is right, and never who is asked, so only prices can favour the rare."""

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """A drawn organelle among those that can still pay."""
        return dealt(cells, allowance, generator, lambda able, _: int(generator.integers(len(able))))

    def update(self, belief: Belief, rewards: Sequence[float]) -> Belief:
        """Old counts fade, new verdicts are added."""
        return belief.faded(FADE, rewards)
