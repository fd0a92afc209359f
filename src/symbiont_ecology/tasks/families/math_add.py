"""Sum of two numbers; long sums of three digits are beyond the embedded host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.types import Depth


@task_families.register("math.add")
@dataclass(frozen=True)
class MathAdd(NumberFamily):
    """``47+8`` → ``=55``."""

    name: ClassVar[str] = "math.add"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the sum"
    instruction: ClassVar[str] = "Add the numbers: {payload}. Reply with {format} and nothing else."
    unseen_frame: ClassVar[int] = 0

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Two summands, the larger first, so that a sum and its mirror image are one payload."""
        if depth == "long":
            pair = pick(generator, 100, 999), pick(generator, 100, 999)
        else:
            pair = pick(generator, 10, 99), pick(generator, *((2, 14) if depth == "short" else (15, 99)))
        return f"{max(pair)}+{min(pair)}"

    def result(self, payload: str) -> int:
        """The sum."""
        left, right = payload.split("+")
        return int(left) + int(right)
