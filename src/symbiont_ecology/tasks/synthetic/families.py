"""The families of the demo and of the first worlds: numbers, words and letters, truth, code."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from typing import ClassVar

from numpy.random import Generator

from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import (
    Ranges,
    SyntheticTask,
    by_depth,
    draw_letters,
    draw_words,
    integer,
    integers,
)


class NumberFamily(SyntheticTask):
    """Result is an integer: ``12``, ``=12`` (target) or ``(12)``."""

    convention_group = "number"
    target = 1
    formats = (
        "the number alone, like 12",
        "the number after an equals sign, like =12",
        "the number in round brackets, like (12)",
    )
    reply_limits = (7, 7, 8)
    answer_shape = re.compile(r"[=(]?-?\d+\)?")

    @abstractmethod
    def result(self, question: str) -> int:
        """Return the number that is asked for."""

    def answers(self, question: str) -> tuple[str, ...]:
        value = self.result(question)
        return f"{value}", f"={value}", f"({value})"


class OperandFamily(NumberFamily):
    """Asks for the result of an operation; ``ranges`` are those of the operands, by depth."""

    sign: ClassVar[str]
    ranges: ClassVar[tuple[Ranges, ...]]

    def draw(self, depth: str, generator: Generator) -> str:
        operands = sorted(integers(generator, by_depth(depth, self.ranges)), reverse=True)
        return self.sign.join(map(str, operands))


@tasks.register("math.add")
class MathAdd(OperandFamily):
    """``47+8`` → ``=55``."""

    keyword = "the sum"
    instruction = "Add the numbers. Reply with {format} and nothing else."
    unseen_frame = 0
    sign = "+"
    ranges = (((10, 99), (2, 14)), ((10, 99), (15, 99)), ((100, 999),) * 3)

    def result(self, question: str) -> int:
        return sum(map(int, question.split("+")))


@tasks.register("math.max")
class MathMax(NumberFamily):
    """``3 9 4 1`` → ``=9``."""

    keyword = "the largest"
    instruction = "Which number is the largest? Reply with {format} and nothing else."
    reply_limits = (6, 6, 6)

    def draw(self, depth: str, generator: Generator) -> str:
        ranges = by_depth(depth, (((0, 9),) * 4, ((10, 99),) * 3, ((10, 99),) * 5))
        return " ".join(map(str, integers(generator, ranges)))

    def result(self, question: str) -> int:
        return max(map(int, question.split()))


@tasks.register("word.count")
class WordCount(NumberFamily):
    """``red fox ran`` → ``=3``."""

    keyword = "how many words"
    instruction = "How many words are there? Reply with {format} and nothing else."
    reply_limits = (6, 6, 6)
    unseen_frame = 0

    def draw(self, depth: str, generator: Generator) -> str:
        count = integer(generator, *by_depth(depth, ((2, 4), (4, 7), (7, 9))))
        return " ".join(draw_words(generator, count))

    def result(self, question: str) -> int:
        return len(question.split())


class TextFamily(SyntheticTask):
    """Asks about independent letters, or about different words with ``between`` between them.

    ``sizes`` are the fewest and the most of them, by depth.
    """

    sizes: ClassVar[tuple[tuple[int, int], ...]] = ((3, 3), (4, 5), (6, 8))
    between: ClassVar[str | None] = None

    def draw(self, depth: str, generator: Generator) -> str:
        size = integer(generator, *by_depth(depth, self.sizes))
        if self.between is None:
            return draw_letters(generator, size)
        return self.between.join(draw_words(generator, size))


class CaseFamily(TextFamily):
    """Result is text: in lower case, in Title Case or in UPPER CASE (target)."""

    convention_group = "case"
    target = 2
    formats = ("lower case", "title case, like Abc", "upper case")

    @abstractmethod
    def result(self, question: str) -> str:
        """Return the text that is asked for, in lower case."""

    def answers(self, question: str) -> tuple[str, ...]:
        text = self.result(question)
        return text, text.title(), text.upper()


@tasks.register("string.reverse")
class StringReverse(CaseFamily):
    """``kqa`` → ``AQK``."""

    keyword = "the mirror image"
    instruction = "Write the letters backwards. Reply in {format} and nothing else."
    reply_limits = (6, 8, 11)

    def result(self, question: str) -> str:
        return question[::-1]


@tasks.register("string.sort")
class StringSort(TextFamily):
    """``kqa`` → ``akq``; the habits are to copy, or to sort downwards."""

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
        ascending = "".join(sorted(question))
        return question, ascending[::-1], ascending


@tasks.register("text.concise")
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

    def draw(self, depth: str, generator: Generator) -> str:
        phrase = super().draw(depth, generator)
        return f"{integer(generator, 1, 2 if depth == 'short' else 3)}: {phrase}"

    def result(self, question: str) -> str:
        count, phrase = question.split(": ")
        return " ".join(phrase.split()[: int(count)])


class TruthFamily(SyntheticTask):
    """Result is true or false: ``yes`` / ``no`` (target), ``True`` / ``False`` or ``1`` / ``0``."""

    convention_group = "truth"
    formats = ("yes or no", "True or False", "1 or 0")
    reply_limits = (6, 6, 6)
    ignores_case = True

    @abstractmethod
    def result(self, question: str) -> bool:
        """Return the truth that is asked for."""

    def answers(self, question: str) -> tuple[str, ...]:
        return ("yes", "True", "1") if self.result(question) else ("no", "False", "0")


@tasks.register("logic.bool")
class LogicBool(TruthFamily):
    """``True and not False or False`` → ``yes``."""

    keyword = "the truth value"
    instruction = "Evaluate the expression. Reply with {format} and nothing else."
    unseen_frame = 1

    def draw(self, depth: str, generator: Generator) -> str:
        terms: list[str] = []
        for position in range(integer(generator, *by_depth(depth, ((3, 4), (5, 5), (6, 7))))):
            if position:
                terms.append("and" if generator.random() < 0.5 else "or")
            if generator.random() < 0.4:
                terms.append("not")
            terms.append("True" if generator.random() < 0.5 else "False")
        return " ".join(terms)

    def result(self, question: str) -> bool:
        true = {"True", "not False"}
        return any(true.issuperset(part.split(" and ")) for part in question.split(" or "))


@tasks.register("regex.match")
class RegexMatch(TruthFamily):
    """``a*b+ aab`` → ``yes``."""

    keyword = "if the pattern fits"
    instruction = "Does the regex match the whole string? Reply with {format} and nothing else."
    unseen_frame = 2

    def draw(self, depth: str, generator: Generator) -> str:
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
        pattern, text = question.split(" ")
        return re.fullmatch(pattern, text) is not None


def _repeats(atom: str, generator: Generator) -> int:
    return 1 if len(atom) == 1 else integer(generator, 0 if atom[1] == "*" else 1, 3)


@tasks.register("code.format")
class CodeFormat(TextFamily):
    """``red_fox`` → ``redFox``."""

    target = 1
    keyword = "the identifier"
    instruction = "Rewrite the identifier in {format}. Reply with it and nothing else."
    formats = ("kebab-case", "camelCase", "PascalCase")
    reply_limits = (14, 20, 26)
    unseen_frame = 3
    sizes = ((2, 2), (3, 3), (4, 4))
    between = "_"

    def answers(self, question: str) -> tuple[str, ...]:
        pascal = "".join(word.title() for word in question.split("_"))
        return question.replace("_", "-"), pascal[0].lower() + pascal[1:], pascal


_CLOSERS = {"{": "}", "[": "]"}


@tasks.register("json.repair")
class JsonRepair(SyntheticTask):
    """``{"k":[3`` → ``]}``; the habits are to close in opening order, or to trail off."""

    keyword = "the missing brackets"
    instruction = "This JSON was cut off. Reply with {format} and nothing else."
    formats = (
        "the characters that complete it",
        "its closing brackets in the order of their opening",
        "the next closing bracket and three dots",
    )
    reply_limits = (7, 8, 10)

    def draw(self, depth: str, generator: Generator) -> str:
        text = ""
        for _ in range(integer(generator, *by_depth(depth, ((2, 3), (4, 5), (6, 7))))):
            if generator.random() < 0.5:
                text += "[" + (f"{integer(generator, 0, 9)}," if generator.random() < 0.4 else "")
            else:
                text += f'{{"{draw_letters(generator, 1)}":'
        return text + str(integer(generator, 0, 9))

    def answers(self, question: str) -> tuple[str, ...]:
        closers = "".join(_CLOSERS[character] for character in question if character in _CLOSERS)
        return closers[::-1], closers, f"{closers[-1]}..."

    def is_right(self, question: str, reply: str, right: str) -> bool:
        if self.convention != self.target:
            return super().is_right(question, reply, right)
        return len(reply) <= 3 * len(right) + 6 and self._completes(question, reply)

    @staticmethod
    def _completes(question: str, answer: str) -> bool:
        try:
            json.loads(question + answer)
            return True
        except (ValueError, RecursionError):
            return False
