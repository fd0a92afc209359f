"""The initials of a phrase. Kept from all adapters: family shift within the case group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import CaseFamily
from symbiont_ecology.tasks.words import draw_words
from symbiont_ecology.types import Depth


@task_families.register("string.initials")
@dataclass(frozen=True)
class StringInitials(CaseFamily):
    """``red fox ran`` → ``RFR``."""

    name: ClassVar[str] = "string.initials"
    role: ClassVar[Role] = "shared"
    keyword: ClassVar[str] = "the first letters"
    instruction: ClassVar[str] = (
        "Write the first letter of each word: {payload}. Reply in {format} and nothing else."
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 8, 11)
    unseen_frame: ClassVar[int] = 1

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Different words."""
        return " ".join(
            draw_words(generator, pick(generator, *by_depth(depth, ((2, 3), (4, 5), (6, 8)))))
        )

    def result(self, payload: str) -> str:
        """One letter for each word."""
        return "".join(word[0] for word in payload.split())
