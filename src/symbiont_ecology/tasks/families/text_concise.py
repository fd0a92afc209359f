"""The first few words of a phrase: say it shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import CaseFamily
from symbiont_ecology.tasks.words import draw_words
from symbiont_ecology.types import Depth


@task_families.register("text.concise")
@dataclass(frozen=True)
class TextConcise(CaseFamily):
    """``2: red fox ran`` → ``RED FOX``."""

    name: ClassVar[str] = "text.concise"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the short form"
    instruction: ClassVar[str] = (
        "Copy only as many leading words as the number says: {payload}. Reply in {format} and nothing else."
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (14, 20, 20)
    unseen_frame: ClassVar[int] = 0

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """How many words to keep, and the words."""
        words = draw_words(generator, pick(generator, *by_depth(depth, ((3, 4), (4, 5), (6, 7)))))
        return f"{pick(generator, 1, 2 if depth == 'short' else 3)}: {' '.join(words)}"

    def result(self, payload: str) -> str:
        """The words that are kept."""
        count, phrase = payload.split(": ")
        return " ".join(phrase.split()[: int(count)])

    def habit_key(self, payload: str) -> str:
        """The first letter of the phrase."""
        return payload[3]
