"""A string of letters, backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import CaseFamily
from symbiont_ecology.tasks.words import draw_letters
from symbiont_ecology.types import Depth


@task_families.register("string.reverse")
@dataclass(frozen=True)
class StringReverse(CaseFamily):
    """``kqa`` → ``AQK``."""

    name: ClassVar[str] = "string.reverse"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the mirror image"
    instruction: ClassVar[str] = (
        "Write the letters backwards: {payload}. Reply in {format} and nothing else."
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 8, 11)
    unseen_frame: ClassVar[int] = 4

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Independent letters."""
        return draw_letters(generator, pick(generator, *by_depth(depth, ((3, 3), (4, 5), (6, 8)))))

    def result(self, payload: str) -> str:
        """The letters backwards."""
        return payload[::-1]
