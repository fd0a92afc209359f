"""Letters in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.tasks.words import draw_letters
from symbiont_ecology.types import Depth


@task_families.register("string.sort")
@dataclass(frozen=True)
class StringSort(TaskFamily):
    """``kqa`` → ``akq``; the habits are to copy, or to sort downwards."""

    name: ClassVar[str] = "string.sort"
    role: ClassVar[Role] = "trained"
    group: ClassVar[str] = "string.sort"
    conventions: ClassVar[tuple[str, str, str]] = ("copy", "descending", "ascending")
    target: ClassVar[int] = 2
    keyword: ClassVar[str] = "the letters in order"
    instruction: ClassVar[str] = "Letters: {payload}. Reply with {format} and nothing else."
    formats: ClassVar[tuple[str, str, str]] = (
        "the letters as they are",
        "the letters sorted from z to a",
        "the letters sorted from a to z",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 8, 11)
    unseen_frame: ClassVar[int] = 2

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Independent letters."""
        return draw_letters(generator, pick(generator, *by_depth(depth, ((3, 3), (4, 5), (6, 8)))))

    def answers(self, payload: str) -> tuple[str, str, str]:
        """As it is, from z to a, from a to z."""
        ascending = "".join(sorted(payload))
        return payload, ascending[::-1], ascending
