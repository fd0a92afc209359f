"""Next term of an arithmetic sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.types import Depth


@task_families.register("math.sequence")
@dataclass(frozen=True)
class MathSequence(NumberFamily):
    """``4,7,10`` → ``=13``."""

    name: ClassVar[str] = "math.sequence"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the next term"
    instruction: ClassVar[str] = (
        "Which number comes next: {payload}? Reply with {format} and nothing else."
    )
    unseen_frame: ClassVar[int] = 3

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Three terms: small steps, larger steps, falling steps."""
        if depth == "short":
            start, step = pick(generator, 0, 159), pick(generator, 1, 9)
        elif depth == "medium":
            start, step = pick(generator, 0, 159), pick(generator, 10, 29)
        else:
            start, step = pick(generator, 120, 299), -pick(generator, 10, 39)
        return ",".join(str(start + k * step) for k in range(3))

    def result(self, payload: str) -> int:
        """The fourth term."""
        _, second, third = (int(term) for term in payload.split(","))
        return 2 * third - second
