"""Whether an inequality holds. Kept from all adapters: family shift within the truth group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import TruthFamily
from symbiont_ecology.types import Depth


@task_families.register("math.compare")
@dataclass(frozen=True)
class MathCompare(TruthFamily):
    """``47<52`` → ``yes``."""

    name: ClassVar[str] = "math.compare"
    role: ClassVar[Role] = "shared"
    keyword: ClassVar[str] = "if this holds"
    instruction: ClassVar[str] = "Is it true that {payload}? Reply with {format} and nothing else."
    unseen_frame: ClassVar[int] = 3

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Two different numbers and a sign."""
        low, high = by_depth(depth, ((10, 99), (100, 999), (1000, 9999)))
        left = pick(generator, low, high)
        right = (
            left + pick(generator, 1, high - low)
            if generator.random() < 0.5
            else pick(generator, low, left)
        )
        return f"{left}{'<>'[pick(generator, 0, 1)]}{right if low <= right <= high else low}"

    def result(self, payload: str) -> bool:
        """Whether the sign is right."""
        sign = "<" if "<" in payload else ">"
        left, right = (int(number) for number in payload.split(sign))
        return left < right if sign == "<" else left > right

    def is_valid(self, payload: str) -> bool:
        """Equal numbers are left out."""
        left, right = payload.replace(">", "<").split("<")
        return left != right
