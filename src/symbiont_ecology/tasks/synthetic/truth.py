"""Families whose answer is true or false."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.tasks.synthetic.draws import integer
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, family


@dataclass(frozen=True)
class TruthFamily(SyntheticTask):
    """Result is true or false: ``yes`` / ``no`` (target), ``True`` / ``False`` or ``1`` / ``0``."""

    convention_group = "truth"
    conventions = ("yes or no", "True or False", "1 or 0")
    target = 0
    formats = ("yes or no", "True or False", "1 or 0")
    reply_limits = (6, 6, 6)
    ignores_case = True

    @abstractmethod
    def result(self, question: str) -> bool:
        """The truth that is asked for."""

    def answers(self, question: str) -> tuple[str, ...]:
        """The truth value in the three renderings."""
        return ("yes", "True", "1") if self.result(question) else ("no", "False", "0")

    def other_offers(self, right: str, answers: Sequence[str]) -> frozenset[str]:
        """Every rendering of both truth values except the right one."""
        return frozenset(("yes", "no", "True", "False", "1", "0")) - {right}


@family("logic.bool")
class LogicBool(TruthFamily):
    """``True and not False or False`` → ``yes``."""

    keyword = "the truth value"
    instruction = "Evaluate the expression. Reply with {format} and nothing else."
    unseen_frame = 1

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Literals, some negated, joined by and / or."""
        terms: list[str] = []
        for position in range(integer(generator, *by_depth(depth, ((3, 4), (5, 5), (6, 7))))):
            if position:
                terms.append("and" if generator.random() < 0.5 else "or")
            if generator.random() < 0.4:
                terms.append("not")
            terms.append("True" if generator.random() < 0.5 else "False")
        return " ".join(terms)

    def result(self, question: str) -> bool:
        """The value, by splitting at or, then at and."""
        true = {"True", "not False"}
        return any(true.issuperset(part.split(" and ")) for part in question.split(" or "))

    def habit_key(self, question: str) -> str:
        """The first letters: a literal, or a negation and the first letter of its literal."""
        return question[:5]


@family("math.compare")
class MathCompare(TruthFamily):
    """``47<52`` → ``yes``."""

    role = "shared"
    keyword = "if this holds"
    instruction = "Is it true? Reply with {format} and nothing else."
    unseen_frame = 3

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Two different numbers and a sign."""
        low, high = by_depth(depth, ((10, 99), (100, 999), (1000, 9999)))
        left = integer(generator, low, high)
        is_above = generator.random() < 0.5
        right = (
            left + integer(generator, 1, high - low) if is_above else integer(generator, low, left)
        )
        return f"{left}{'<>'[integer(generator, 0, 1)]}{right if low <= right <= high else low}"

    def result(self, question: str) -> bool:
        """Whether the sign is right."""
        left, right = map(int, question.replace(">", "<").split("<"))
        return left < right if "<" in question else left > right

    def is_valid(self, question: str) -> bool:
        """Equal numbers are left out."""
        left, right = question.replace(">", "<").split("<")
        return left != right


@family("regex.match")
class RegexMatch(TruthFamily):
    """``a*b+ aab`` → ``yes``."""

    keyword = "if the pattern fits"
    instruction = "Does the regex match the whole string? Reply with {format} and nothing else."
    unseen_frame = 2

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """A pattern of a few atoms and a string, about half of which match."""
        atoms = [
            "abc"[integer(generator, 0, 2)] + ("", "*", "+")[integer(generator, 0, 2)]
            for _ in range(integer(generator, *by_depth(depth, ((2, 2), (3, 3), (4, 5)))))
        ]
        text = "".join(atom[0] * _repeats(atom, generator) for atom in atoms)
        if generator.random() < 0.5:  # most mutations of a matching string do not match
            spot = integer(generator, 0, len(text))
            letter, skipped = "abc"[integer(generator, 0, 2)], integer(generator, 0, 1)
            text = text[:spot] + letter + text[spot + skipped :]
        return f"{''.join(atoms)} {text or 'a'}"

    def result(self, question: str) -> bool:
        """Whether the pattern matches the whole string."""
        pattern, text = question.split(" ")
        return re.fullmatch(pattern, text) is not None

    def habit_key(self, question: str) -> str:
        """The first atom and what follows its letter."""
        return question[:2]


def _repeats(atom: str, generator: np.random.Generator) -> int:
    return 1 if len(atom) == 1 else integer(generator, 0 if atom[1] == "*" else 1, 3)
