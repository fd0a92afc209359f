"""Letters moved around the end. Kept from all adapters: unrelated to any trained group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.tasks.words import draw_letters
from symbiont_ecology.types import Depth


@task_families.register("string.rotate")
@dataclass(frozen=True)
class StringRotate(TaskFamily):
    """``kqa`` → ``qak``."""

    name: ClassVar[str] = "string.rotate"
    role: ClassVar[Role] = "unrelated"
    group: ClassVar[str] = "string.rotate"
    conventions: ClassVar[tuple[str, str, str]] = ("right", "left", "starred")
    target: ClassVar[int] = 1
    keyword: ClassVar[str] = "the rotation"
    instruction: ClassVar[str] = (
        "Rotate the letters {payload} {format}. Reply with the letters and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = (
        "one place to the right",
        "one place to the left",
        "not at all, but put a star after each letter",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (8, 12, 18)
    unseen_frame: ClassVar[int] = 1

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Independent letters."""
        return draw_letters(generator, pick(generator, *by_depth(depth, ((3, 3), (4, 5), (6, 8)))))

    def answers(self, payload: str) -> tuple[str, str, str]:
        """akq, qak, k*q*a*."""
        return (
            payload[-1] + payload[:-1],
            payload[1:] + payload[0],
            "".join(f"{letter}*" for letter in payload),
        )
