"""Close what was left open: the brackets that make a JSON text whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, by_depth, pick
from symbiont_ecology.tasks.words import draw_letters
from symbiont_ecology.types import Depth, Item

_CLOSERS = {"{": "}", "[": "]"}


@task_families.register("json.repair")
@dataclass(frozen=True)
class JsonRepair(TaskFamily):
    """``{"k":[3`` → ``]}``; the habits are to close in opening order, or to trail off."""

    name: ClassVar[str] = "json.repair"
    role: ClassVar[Role] = "trained"
    group: ClassVar[str] = "json.repair"
    conventions: ClassVar[tuple[str, str, str]] = ("closed", "in opening order", "trailing off")
    target: ClassVar[int] = 0
    keyword: ClassVar[str] = "the missing brackets"
    instruction: ClassVar[str] = (
        "This JSON was cut off: {payload} Reply with {format} and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = (
        "the characters that complete it",
        "its closing brackets in the order of their opening",
        "the next closing bracket and three dots",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (7, 8, 10)
    unseen_frame: ClassVar[int] = 4

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Nested objects and lists down to one digit, never closed."""
        text = ""
        for _ in range(pick(generator, *by_depth(depth, ((2, 3), (4, 5), (6, 7))))):
            if generator.random() < 0.5:
                text += "[" + (f"{pick(generator, 0, 9)}," if generator.random() < 0.4 else "")
            else:
                text += f'{{"{draw_letters(generator, 1)}":'
        return text + str(pick(generator, 0, 9))

    def answers(self, payload: str) -> tuple[str, str, str]:
        """The closing brackets innermost first; outermost first; one of them and dots."""
        opened = "".join(_CLOSERS[character] for character in payload if character in _CLOSERS)
        return opened[::-1], opened, f"{opened[-1]}..."

    def is_valid(self, payload: str) -> bool:
        """Symmetric brackets close the same way in both orders and are left out."""
        return super().is_valid(payload) and self._completes(payload, self.answers(payload)[0])

    def is_right(self, item: Item, answer: str) -> bool:
        """For the target convention, whatever completes the text, not the reference alone."""
        if item.convention != self.target:
            return super().is_right(item, answer)
        return len(answer) <= 3 * len(item.answer) + 6 and self._completes(item.payload, answer)

    def habit_key(self, payload: str) -> str:
        """The innermost digit."""
        return payload[-1]

    @staticmethod
    def _completes(payload: str, answer: str) -> bool:
        try:
            json.loads(payload + answer)
        except (ValueError, RecursionError):
            return False
        return True
