"""Composition: identifiers with dashes *and* in capitals, a convention that pre-training never
showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.families.code_format import CodeFormat
from symbiont_ecology.tasks.family import Role


@task_families.register("code.scream")
@dataclass(frozen=True)
class CodeScream(CodeFormat):
    """``red_fox`` → ``RED-FOX``: code.format's kebab style with the case group's target."""

    name: ClassVar[str] = "code.scream"
    role: ClassVar[Role] = "composition"
    group: ClassVar[str] = "code.scream"
    conventions: ClassVar[tuple[str, str, str]] = ("kebab", "screaming kebab", "screaming snake")
    keyword: ClassVar[str] = "the loud identifier"
    formats: ClassVar[tuple[str, str, str]] = (
        "kebab-case",
        "SCREAMING-KEBAB-CASE",
        "SCREAMING_SNAKE_CASE",
    )

    def answers(self, payload: str) -> tuple[str, str, str]:
        """red-fox, RED-FOX, RED_FOX."""
        return payload.replace("_", "-"), payload.replace("_", "-").upper(), payload.upper()
