"""Largest of a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.types import Depth


@task_families.register("math.max")
@dataclass(frozen=True)
class MathMax(NumberFamily):
    """``3 9 4 1`` → ``=9``."""

    name: ClassVar[str] = "math.max"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the largest"
    instruction: ClassVar[str] = (
        "Which is the largest of {payload}? Reply with {format} and nothing else."
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 6, 6)
    unseen_frame: ClassVar[int] = 4

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Four digits, three numbers of two digits, or five of them."""
        low, high, count = {"short": (0, 9, 4), "medium": (10, 99, 3), "long": (10, 99, 5)}[depth]
        return " ".join(str(pick(generator, low, high)) for _ in range(count))

    def result(self, payload: str) -> int:
        """The maximum."""
        return max(int(number) for number in payload.split())
