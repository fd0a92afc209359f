"""Whether a simple pattern matches a whole string. Patterns are our own, never a model's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, by_depth, pick
from symbiont_ecology.tasks.groups import TruthFamily
from symbiont_ecology.types import Depth

_ATOM = re.compile(r"[abc][*+]?")


@task_families.register("regex.match")
@dataclass(frozen=True)
class RegexMatch(TruthFamily):
    """``a*b+ aab`` → ``yes``."""

    name: ClassVar[str] = "regex.match"
    role: ClassVar[Role] = "trained"
    keyword: ClassVar[str] = "if the pattern fits"
    instruction: ClassVar[str] = (
        "Does the regex match the whole string? {payload}. Reply with {format} and nothing else."
    )
    unseen_frame: ClassVar[int] = 2

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """A pattern of a few atoms and a string, about half of which match."""
        atoms = [
            "abc"[pick(generator, 0, 2)] + ("", "*", "+")[pick(generator, 0, 2)]
            for _ in range(pick(generator, *by_depth(depth, ((2, 2), (3, 3), (4, 5)))))
        ]
        text = "".join(atom[0] * _repeats(atom, generator) for atom in atoms)
        if generator.random() < 0.5:  # most mutations of a matching string do not match
            spot = pick(generator, 0, len(text))
            text = text[:spot] + "abc"[pick(generator, 0, 2)] + text[spot + pick(generator, 0, 1) :]
        return f"{''.join(atoms)} {text or 'a'}"

    def result(self, payload: str) -> bool:
        """Whether the pattern matches the whole string."""
        pattern, text = payload.split(" ")
        return re.fullmatch(pattern, text) is not None

    def habit_key(self, payload: str) -> str:
        """The first atom and what follows its letter."""
        return payload[:2]


def _repeats(atom: str, generator: np.random.Generator) -> int:
    return 1 if len(atom) == 1 else pick(generator, 0 if atom[1] == "*" else 1, 3)
