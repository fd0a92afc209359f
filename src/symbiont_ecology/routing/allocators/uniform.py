"""Control: anyone who can pay takes a question, whatever is known of anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.ecology import Belief
from symbiont_ecology.routing.allocators import Allocator, allocators


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform(Allocator):
    """Well mixed: skill decides who is right, and never who is asked, so only prices can favour the rare."""

    fade: ClassVar[float] = 0.8  # beliefs serve the archive alone here

    def pick(self, known: Sequence[Belief], given: Sequence[int], generator: np.random.Generator) -> int:
        """Anyone, by draw."""
        return int(generator.integers(len(known)))
