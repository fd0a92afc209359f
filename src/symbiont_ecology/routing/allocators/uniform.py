"""Control: anyone who can pay takes a question, whatever is known of anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.random import Generator

from symbiont_ecology.registry import Share
from symbiont_ecology.routing.allocators import Allocator, Posteriors, allocators


@allocators.register("uniform")
@dataclass(frozen=True)
class Uniform(Allocator):
    """Well mixed: skill decides who is right, and never who is asked, so only prices can favour the
    rare."""

    fade: Share = 0.8  # part of a count that is left after each generation with news, in [0, 1]

    def pick(self, known: Posteriors, given: Sequence[int], generator: Generator) -> int:
        """Anyone, by draw."""
        return int(generator.integers(len(known)))
