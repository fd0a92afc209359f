"""Case styles of identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.tasks.words import draw_words
from symbiont_ecology.types import Depth


@task_families.register("code.format")
@dataclass(frozen=True)
class CodeFormat(TaskFamily):
    """``red_fox`` → ``redFox``."""

    name: ClassVar[str] = "code.format"
    role: ClassVar[Role] = "trained"
    group: ClassVar[str] = "code.format"
    conventions: ClassVar[tuple[str, str, str]] = ("kebab", "camel", "pascal")
    target: ClassVar[int] = 1
    keyword: ClassVar[str] = "the identifier"
    instruction: ClassVar[str] = (
        "Rewrite the identifier {payload} in {format}. Reply with the identifier and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = ("kebab-case", "camelCase", "PascalCase")
    reply_limits: ClassVar[tuple[int, int, int]] = (14, 20, 26)
    unseen_frame: ClassVar[int] = 3

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """An identifier in snake_case."""
        return "_".join(
            draw_words(generator, pick(generator, *by_depth(depth, ((2, 2), (3, 3), (4, 4)))))
        )

    def answers(self, payload: str) -> tuple[str, str, str]:
        """red-fox, redFox, RedFox."""
        pascal = "".join(word.title() for word in payload.split("_"))
        return payload.replace("_", "-"), pascal[0].lower() + pascal[1:], pascal
