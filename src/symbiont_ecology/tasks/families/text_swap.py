"""Words in another order. Kept from all adapters: unrelated to any trained group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.tasks.words import draw_words
from symbiont_ecology.types import Depth


@task_families.register("text.swap")
@dataclass(frozen=True)
class TextSwap(TaskFamily):
    """``red fox`` → ``fox red``."""

    name: ClassVar[str] = "text.swap"
    role: ClassVar[Role] = "unrelated"
    group: ClassVar[str] = "text.swap"
    conventions: ClassVar[tuple[str, str, str]] = ("joined", "last", "reversed")
    target: ClassVar[int] = 2
    keyword: ClassVar[str] = "the words turned round"
    instruction: ClassVar[str] = "Words: {payload}. Reply with {format} and nothing else."
    formats: ClassVar[tuple[str, str, str]] = (
        "the words joined by plus signs",
        "the last word alone",
        "the words in reverse order",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (19, 25, 32)
    unseen_frame: ClassVar[int] = 3

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Different words."""
        return " ".join(
            draw_words(generator, pick(generator, *by_depth(depth, ((2, 3), (4, 4), (5, 5)))))
        )

    def answers(self, payload: str) -> tuple[str, str, str]:
        """red+fox, fox, fox red."""
        words = payload.split()
        return "+".join(words), words[-1], " ".join(reversed(words))
