"""The digits of a number, taken apart. Kept from all adapters: unrelated to any trained group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.types import Depth


@task_families.register("number.digits")
@dataclass(frozen=True)
class NumberDigits(TaskFamily):
    """``407`` → ``4-0-7``."""

    name: ClassVar[str] = "number.digits"
    role: ClassVar[Role] = "unrelated"
    group: ClassVar[str] = "number.digits"
    conventions: ClassVar[tuple[str, str, str]] = ("dashes", "slashes", "doubled")
    target: ClassVar[int] = 0
    keyword: ClassVar[str] = "every digit"
    instruction: ClassVar[str] = (
        "Take the number {payload} and {format}. Reply with that and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = (
        "put dashes between its digits",
        "put slashes between its digits",
        "write each digit twice",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (9, 12, 15)
    unseen_frame: ClassVar[int] = 2

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Independent digits."""
        count = pick(generator, *by_depth(depth, ((3, 4), (5, 5), (6, 7))))
        return "".join(str(digit) for digit in generator.integers(0, 10, size=count))

    def answers(self, payload: str) -> tuple[str, str, str]:
        """4-0-7, 4/0/7, 440077."""
        return "-".join(payload), "/".join(payload), "".join(digit * 2 for digit in payload)
