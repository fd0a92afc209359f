"""Sum of numbers; long sums, of three numbers of three digits, are mostly beyond the embedded
host."""

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
        """Summands from large to small, so that a sum and its mirror images are one payload."""
        if depth == "long":
            summands = [pick(generator, 100, 999) for _ in range(3)]
        else:
            summands = [
                pick(generator, 10, 99),
                pick(generator, *((2, 14) if depth == "short" else (15, 99))),
            ]
        return "+".join(map(str, sorted(summands, reverse=True)))

    def result(self, payload: str) -> int:
        """The sum."""
        return sum(int(summand) for summand in payload.split("+"))
