"""Value of a Boolean expression: ``not`` binds before ``and``, ``and`` before ``or``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import TruthFamily
from symbiont_ecology.types import Depth


@task_families.register("logic.bool")
@dataclass(frozen=True)
class LogicBool(TruthFamily):
    """``True and not False or False`` → ``yes``."""

    name: ClassVar[str] = "logic.bool"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "the truth value"
    instruction: ClassVar[str] = "Evaluate: {payload}. Reply with {format} and nothing else."
    unseen_frame: ClassVar[int] = 1

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Literals, some negated, joined by and / or."""
        terms: list[str] = []
        for position in range(pick(generator, *by_depth(depth, ((3, 4), (5, 5), (6, 7))))):
            if position:
                terms.append("and" if generator.random() < 0.5 else "or")
            if generator.random() < 0.4:
                terms.append("not")
            terms.append("True" if generator.random() < 0.5 else "False")
        return " ".join(terms)

    def result(self, payload: str) -> bool:
        """The value, by splitting at or, then at and."""
        return any(
            all(_literal(term) for term in part.split(" and ")) for part in payload.split(" or ")
        )

    def habit_key(self, payload: str) -> str:
        """The first letters: a literal, or a negation and the first letter of its literal."""
        return payload[:5]


def _literal(term: str) -> bool:
    return (term == "True") or (term == "not False")
