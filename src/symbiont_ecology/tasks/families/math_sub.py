"""Difference of two numbers, never negative. Kept from all adapters: family shift within its
group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.types import Depth


@task_families.register("math.sub")
@dataclass(frozen=True)
class MathSub(NumberFamily):
    """``47-8`` → ``=39``."""

    name: ClassVar[str] = "math.sub"
    role: ClassVar[Role] = "shared"
    keyword: ClassVar[str] = "the difference"
    instruction: ClassVar[str] = "Subtract: {payload}. Reply with {format} and nothing else."
    unseen_frame: ClassVar[int] = 1

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """The larger number comes first; long ones have five digits."""
        if depth == "long":
            pair = pick(generator, 10_000, 99_999), pick(generator, 10_000, 99_999)
        else:
            pair = (
                pick(generator, 10, 99),
                pick(generator, *((2, 14) if depth == "short" else (15, 99))),
            )
        return f"{max(pair)}-{min(pair)}"

    def result(self, payload: str) -> int:
        """The difference."""
        left, right = payload.split("-")
        return int(left) - int(right)
