"""Control: anyone who can pay takes a question, whatever is known of anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.ecology import Belief
from symbiont_ecology.routing.allocators import allocators, dealt
from symbiont_ecology.types import Cell, OrganelleId


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform:
    """Well mixed: skill decides who is right, and never who is asked, so only prices can favour the rare."""

    fade: ClassVar[float] = 0.8  # beliefs serve the archive alone here

    def assign(
        self,
        cells: Sequence[Cell],
        beliefs: Mapping[OrganelleId, Mapping[str, Belief]],
        allowance: Mapping[OrganelleId, int],
        generator: np.random.Generator,
    ) -> list[tuple[OrganelleId, Cell]]:
        """A drawn organelle among those that can still pay."""
        return dealt(cells, allowance, generator, lambda able, _: int(generator.integers(len(able))))
