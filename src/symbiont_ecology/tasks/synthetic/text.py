"""Families about letters and words."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks.synthetic.draws import draw_letters, draw_words, integer
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, family


@dataclass(frozen=True)
class TextFamily(SyntheticTask):
    """Asks about independent letters, or about different words with ``between`` between them.

    ``sizes`` are the fewest and the most of them, by depth.
    """

    sizes: ClassVar[tuple[tuple[int, int], ...]] = ((3, 3), (4, 5), (6, 8))
    between: ClassVar[str | None] = None

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """So many letters or words."""
        size = integer(generator, *by_depth(depth, self.sizes))
        if self.between is None:
            return draw_letters(generator, size)
        return self.between.join(draw_words(generator, size))


@dataclass(frozen=True)
class CaseFamily(TextFamily):
    """Result is text: in lower case, in Title Case or in UPPER CASE (target)."""

    convention_group = "case"
    conventions = ("lower", "title", "upper")
    target = 2
    formats = ("lower case", "title case, like Abc", "upper case")

    @abstractmethod
    def result(self, question: str) -> str:
        """The text that is asked for, in lower case."""

    def answers(self, question: str) -> tuple[str, ...]:
        """The text in the three renderings."""
        text = self.result(question)
        return text, text.title(), text.upper()


@family("string.initials")
class StringInitials(CaseFamily):
    """``red fox ran`` → ``RFR``."""

    role = "shared"
    keyword = "the first letters"
    instruction = "Write the first letter of each word. Reply in {format} and nothing else."
    reply_limits = (6, 8, 11)
    unseen_frame = 1
    sizes = ((2, 3), (4, 5), (6, 8))
    between = " "

    def result(self, question: str) -> str:
        """One letter for each word."""
        return "".join(word[0] for word in question.split())


@family("string.reverse")
class StringReverse(CaseFamily):
    """``kqa`` → ``AQK``."""

    keyword = "the mirror image"
    instruction = "Write the letters backwards. Reply in {format} and nothing else."
    reply_limits = (6, 8, 11)
    unseen_frame = 4

    def result(self, question: str) -> str:
        """The letters backwards."""
        return question[::-1]


@family("string.rotate")
class StringRotate(TextFamily):
    """``kqa`` → ``qak``."""

    role = "unrelated"
    conventions = ("right", "left", "starred")
    target = 1
    keyword = "the rotation"
    instruction = "Rotate the letters {format}. Reply with the letters and nothing else."
    formats = (
        "one place to the right",
        "one place to the left",
        "not at all, but put a star after each letter",
    )
    reply_limits = (8, 12, 18)
    ignores_case = True
    unseen_frame = 1

    def answers(self, question: str) -> tuple[str, ...]:
        """akq, qak, k*q*a*."""
        return (
            question[-1] + question[:-1],
            question[1:] + question[0],
            "".join(f"{letter}*" for letter in question),
        )


@family("string.sort")
class StringSort(TextFamily):
    """``kqa`` → ``akq``; the habits are to copy, or to sort downwards."""

    conventions = ("copy", "descending", "ascending")
    target = 2
    keyword = "the letters in order"
    instruction = "Look at the letters. Reply with {format} and nothing else."
    formats = (
        "the letters as they are",
        "the letters sorted from z to a",
        "the letters sorted from a to z",
    )
    reply_limits = (6, 8, 11)
    ignores_case = True
    unseen_frame = 2

    def answers(self, question: str) -> tuple[str, ...]:
        """As it is, from z to a, from a to z."""
        ascending = "".join(sorted(question))
        return question, ascending[::-1], ascending


@family("sort.upper")
class SortUpper(StringSort):
    """``kqa`` → ``AKQ``: string.sort with the case group's target."""

    role = "composition"
    convention_group = ""
    ignores_case = False
    conventions = ("capitals as they are", "ascending", "ascending capitals")
    keyword = "the capitals in order"
    formats = (
        "the letters as they are, in capitals",
        "the letters sorted from a to z",
        "the letters sorted from a to z, in capitals",
    )

    def answers(self, question: str) -> tuple[str, ...]:
        """Capitals unsorted, sorted letters, sorted capitals."""
        ascending = "".join(sorted(question))
        return question.upper(), ascending, ascending.upper()


@family("text.concise")
class TextConcise(CaseFamily):
    """``2: red fox ran`` → ``RED FOX``."""

    keyword = "the short form"
    instruction = (
        "Copy only as many leading words as the number says. Reply in {format} and nothing else."
    )
    reply_limits = (14, 20, 20)
    unseen_frame = 0
    sizes = ((3, 4), (4, 5), (6, 7))
    between = " "

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """How many words to keep, and the words."""
        phrase = super().draw(depth, generator)
        return f"{integer(generator, 1, 2 if depth == 'short' else 3)}: {phrase}"

    def result(self, question: str) -> str:
        """The words that are kept."""
        count, phrase = question.split(": ")
        return " ".join(phrase.split()[: int(count)])

    def habit_key(self, question: str) -> str:
        """The first letter of the phrase."""
        return question[3]


@family("text.swap")
class TextSwap(TextFamily):
    """``red fox`` → ``fox red``."""

    role = "unrelated"
    conventions = ("joined", "last", "reversed")
    target = 2
    keyword = "the words turned round"
    instruction = "Look at the words. Reply with {format} and nothing else."
    formats = (
        "the words joined by plus signs",
        "the last word alone",
        "the words in reverse order",
    )
    reply_limits = (19, 25, 32)
    ignores_case = True
    unseen_frame = 3
    sizes = ((2, 3), (4, 4), (5, 5))
    between = " "

    def answers(self, question: str) -> tuple[str, ...]:
        """red+fox, fox, fox red."""
        words = question.split()
        return "+".join(words), words[-1], " ".join(reversed(words))
