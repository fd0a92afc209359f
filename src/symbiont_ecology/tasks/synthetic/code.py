"""Families about code: identifiers, JSON."""

from __future__ import annotations

import json

import numpy as np

from symbiont_ecology.tasks.synthetic.draws import draw_letters, integer
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, family
from symbiont_ecology.tasks.synthetic.text import TextFamily


@family("code.format")
class CodeFormat(TextFamily):
    """``red_fox`` → ``redFox``."""

    conventions = ("kebab", "camel", "pascal")
    target = 1
    keyword = "the identifier"
    instruction = "Rewrite the identifier in {format}. Reply with it and nothing else."
    formats = ("kebab-case", "camelCase", "PascalCase")
    reply_limits = (14, 20, 26)
    unseen_frame = 3
    sizes = ((2, 2), (3, 3), (4, 4))
    between = "_"

    def answers(self, question: str) -> tuple[str, ...]:
        """red-fox, redFox, RedFox."""
        pascal = "".join(word.title() for word in question.split("_"))
        return question.replace("_", "-"), pascal[0].lower() + pascal[1:], pascal


@family("code.scream")
class CodeScream(CodeFormat):
    """``red_fox`` → ``RED-FOX``: code.format's kebab style with the case group's target."""

    role = "composition"
    convention_group = ""
    conventions = ("kebab", "screaming kebab", "screaming snake")
    keyword = "the loud identifier"
    formats = ("kebab-case", "SCREAMING-KEBAB-CASE", "SCREAMING_SNAKE_CASE")

    def answers(self, question: str) -> tuple[str, ...]:
        """red-fox, RED-FOX, RED_FOX."""
        return question.replace("_", "-"), question.replace("_", "-").upper(), question.upper()


_CLOSERS = {"{": "}", "[": "]"}


@family("json.repair")
class JsonRepair(SyntheticTask):
    """``{"k":[3`` → ``]}``; the habits are to close in opening order, or to trail off."""

    conventions = ("closed", "in opening order", "trailing off")
    target = 0
    keyword = "the missing brackets"
    instruction = "This JSON was cut off. Reply with {format} and nothing else."
    formats = (
        "the characters that complete it",
        "its closing brackets in the order of their opening",
        "the next closing bracket and three dots",
    )
    reply_limits = (7, 8, 10)
    unseen_frame = 4

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Nested objects and lists down to one digit, never closed."""
        text = ""
        for _ in range(integer(generator, *by_depth(depth, ((2, 3), (4, 5), (6, 7))))):
            if generator.random() < 0.5:
                text += "[" + (f"{integer(generator, 0, 9)}," if generator.random() < 0.4 else "")
            else:
                text += f'{{"{draw_letters(generator, 1)}":'
        return text + str(integer(generator, 0, 9))

    def answers(self, question: str) -> tuple[str, ...]:
        """The closing brackets innermost first; outermost first; one of them and dots."""
        closers = "".join(_CLOSERS[character] for character in question if character in _CLOSERS)
        return closers[::-1], closers, f"{closers[-1]}..."

    def is_valid(self, question: str) -> bool:
        """Symmetric brackets close the same way in both orders and are left out."""
        return super().is_valid(question) and self._completes(question, self.answers(question)[0])

    def is_right(self, question: str, reply: str, right: str) -> bool:
        """For the target convention, whatever completes the text, not the reference alone."""
        if self.convention != self.target:
            return super().is_right(question, reply, right)
        return len(reply) <= 3 * len(right) + 6 and self._completes(question, reply)

    def habit_key(self, question: str) -> str:
        """The innermost digit."""
        return question[-1]

    @staticmethod
    def _completes(question: str, answer: str) -> bool:
        try:
            json.loads(question + answer)
            return True
        except (ValueError, RecursionError):
            return False
