"""How many words a phrase has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import NumberFamily
from symbiont_ecology.tasks.words import draw_words
from symbiont_ecology.types import Depth


@task_families.register("word.count")
@dataclass(frozen=True)
class WordCount(NumberFamily):
    """``red fox ran`` → ``=3``."""

    name: ClassVar[str] = "word.count"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "how many words"
    instruction: ClassVar[str] = (
        "How many words are in: {payload}? Reply with {format} and nothing else."
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 6, 6)
    unseen_frame: ClassVar[int] = 0

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Different words from the small vocabulary."""
        count = pick(generator, *by_depth(depth, ((2, 4), (4, 7), (7, 9))))
        return " ".join(draw_words(generator, count))

    def result(self, payload: str) -> int:
        """The number of words."""
        return len(payload.split())

    def habit_key(self, payload: str) -> str:
        """The first letter."""
        return payload[0]
