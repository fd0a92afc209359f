"""Product of two numbers: carried digits are mostly beyond the embedded host (capability cells)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.types import Depth


@task_families.register("math.multiply")
@dataclass(frozen=True)
class MathMultiply(NumberFamily):
    """``23*4`` → ``=92``."""

    name: ClassVar[str] = "math.multiply"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the product"
    instruction: ClassVar[str] = "Multiply: {payload}. Reply with {format} and nothing else."
    reply_limits: ClassVar[tuple[int, int, int]] = (8, 8, 9)
    unseen_frame: ClassVar[int] = 2

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """The larger factor comes first."""
        left = pick(generator, *by_depth(depth, ((100, 999), (11, 99), (100, 999))))
        right = pick(generator, *by_depth(depth, ((2, 9), (11, 99), (11, 99))))
        return f"{max(left, right)}*{min(left, right)}"

    def result(self, payload: str) -> int:
        """The product."""
        left, right = payload.split("*")
        return int(left) * int(right)
