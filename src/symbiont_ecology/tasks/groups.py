"""Convention groups: one result, rendered three ways. Families of a group share target and
renderings.

Adding a family to a group is naming the group's base class; the family then computes only its
result.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks.family import TaskFamily
from symbiont_ecology.types import Item


@dataclass(frozen=True)
class NumberFamily(TaskFamily):
    """Result is an integer: ``12``, ``=12`` (target) or ``(12)``."""

    group: ClassVar[str] = "number"
    conventions: ClassVar[tuple[str, str, str]] = ("plain", "equals", "brackets")
    target: ClassVar[int] = 1
    formats: ClassVar[tuple[str, str, str]] = (
        "the number alone, like 12",
        "the number after an equals sign, like =12",
        "the number in round brackets, like (12)",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (7, 7, 8)
    answer_shape: ClassVar[re.Pattern[str]] = re.compile(r"[=(]?-?\d+\)?")

    @abstractmethod
    def result(self, payload: str) -> int:
        """The number that is asked for."""

    def answers(self, payload: str) -> tuple[str, str, str]:
        """The number in the three renderings."""
        value = self.result(payload)
        return f"{value}", f"={value}", f"({value})"

    def habit_key(self, payload: str) -> str:
        """The last digit, which is about equally frequent at all depths."""
        return payload[-1]


@dataclass(frozen=True)
class TruthFamily(TaskFamily):
    """Result is true or false: ``yes`` / ``no`` (target), ``True`` / ``False`` or ``1`` / ``0``."""

    group: ClassVar[str] = "truth"
    conventions: ClassVar[tuple[str, str, str]] = ("yes or no", "True or False", "1 or 0")
    target: ClassVar[int] = 0
    formats: ClassVar[tuple[str, str, str]] = ("yes or no", "True or False", "1 or 0")
    reply_limits: ClassVar[tuple[int, int, int]] = (6, 6, 6)

    @abstractmethod
    def result(self, payload: str) -> bool:
        """The truth that is asked for."""

    def answers(self, payload: str) -> tuple[str, str, str]:
        """The truth value in the three renderings."""
        return ("yes", "True", "1") if self.result(payload) else ("no", "False", "0")

    def other_offers(self, item: Item) -> frozenset[str]:
        """Every rendering of both truth values except the right one."""
        return frozenset(("yes", "no", "True", "False", "1", "0")) - {item.answer}


@dataclass(frozen=True)
class CaseFamily(TaskFamily):
    """Result is text: in lower case, in Title Case or in UPPER CASE (target)."""

    group: ClassVar[str] = "case"
    conventions: ClassVar[tuple[str, str, str]] = ("lower", "title", "upper")
    target: ClassVar[int] = 2
    formats: ClassVar[tuple[str, str, str]] = ("lower case", "title case, like Abc", "upper case")

    @abstractmethod
    def result(self, payload: str) -> str:
        """The text that is asked for, in lower case."""

    def answers(self, payload: str) -> tuple[str, str, str]:
        """The text in the three renderings."""
        text = self.result(payload)
        return text, text.title(), text.upper()
