"""Composition: the number after a sum, a convention that pre-training never showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.families.math_add import MathAdd
from symbiont_ecology.tasks.family import Role


@task_families.register("add.next")
@dataclass(frozen=True)
class AddNext(MathAdd):
    """``47+8`` → ``=56``: math.add, one further."""

    name: ClassVar[str] = "add.next"
    role: ClassVar[Role] = "composition"
    group: ClassVar[str] = "add.next"
    conventions: ClassVar[tuple[str, str, str]] = ("the sum", "one further", "one further, plain")
    keyword: ClassVar[str] = "the number after the sum"
    instruction: ClassVar[str] = (
        "Add the numbers {payload} and {format}. Reply with that and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = (
        "write the sum after an equals sign",
        "write the next number after their sum, after an equals sign",
        "write the next number after their sum",
    )

    def answers(self, payload: str) -> tuple[str, str, str]:
        """=55, =56, 56."""
        value = self.result(payload)
        return f"={value}", f"={value + 1}", f"{value + 1}"
