"""Families about numbers: sums, products, sequences, counts."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks.synthetic.draws import Ranges, draw_words, integer, integers
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, family


@dataclass(frozen=True)
class NumberFamily(SyntheticTask):
    """Result is an integer: ``12``, ``=12`` (target) or ``(12)``."""

    convention_group = "number"
    conventions = ("plain", "equals", "brackets")
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
        """The number that is asked for."""

    def answers(self, question: str) -> tuple[str, ...]:
        """The number in the three renderings."""
        value = self.result(question)
        return f"{value}", f"={value}", f"({value})"

    def habit_key(self, question: str) -> str:
        """The last digit, which is about equally frequent at all depths."""
        return question[-1]


@dataclass(frozen=True)
class OperandFamily(NumberFamily):
    """Asks for the result of an operation; ``ranges`` are those of the operands, by depth."""

    sign: ClassVar[str]
    ranges: ClassVar[tuple[Ranges, ...]]

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Operands from large to small, so that a sum and its mirror images are one question."""
        operands = sorted(integers(generator, by_depth(depth, self.ranges)), reverse=True)
        return self.sign.join(map(str, operands))


@family("math.add")
class MathAdd(OperandFamily):
    """``47+8`` → ``=55``."""

    keyword = "the sum"
    instruction = "Add the numbers. Reply with {format} and nothing else."
    unseen_frame = 0
    sign = "+"
    ranges = (((10, 99), (2, 14)), ((10, 99), (15, 99)), ((100, 999),) * 3)

    def result(self, question: str) -> int:
        """The sum."""
        return sum(map(int, question.split("+")))


@family("add.next")
class AddNext(MathAdd):
    """``47+8`` → ``=56``: math.add, one further."""

    role = "composition"
    convention_group = ""
    conventions = ("the sum", "one further", "one further, plain")
    keyword = "the number after the sum"
    instruction = "Add the numbers and {format}. Reply with that and nothing else."
    formats = (
        "write the sum after an equals sign",
        "write the next number after their sum, after an equals sign",
        "write the next number after their sum",
    )

    def answers(self, question: str) -> tuple[str, ...]:
        """=55, =56, 56."""
        value = self.result(question)
        return f"={value}", f"={value + 1}", f"{value + 1}"


@family("math.max")
class MathMax(NumberFamily):
    """``3 9 4 1`` → ``=9``."""

    keyword = "the largest"
    instruction = "Which number is the largest? Reply with {format} and nothing else."
    reply_limits = (6, 6, 6)
    unseen_frame = 4

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Four digits, three numbers of two digits, or five of them."""
        ranges = by_depth(depth, (((0, 9),) * 4, ((10, 99),) * 3, ((10, 99),) * 5))
        return " ".join(map(str, integers(generator, ranges)))

    def result(self, question: str) -> int:
        """The maximum."""
        return max(map(int, question.split()))


@family("math.multiply")
class MathMultiply(OperandFamily):
    """``23*4`` → ``=92``."""

    keyword = "the product"
    instruction = "Multiply the numbers. Reply with {format} and nothing else."
    reply_limits = (8, 8, 9)
    unseen_frame = 2
    sign = "*"
    ranges = (((100, 999), (2, 9)), ((11, 99), (11, 99)), ((100, 999), (11, 99)))

    def result(self, question: str) -> int:
        """The product."""
        left, right = map(int, question.split("*"))
        return left * right


@family("math.sequence")
class MathSequence(NumberFamily):
    """``4,7,10`` → ``=13``."""

    keyword = "the next term"
    instruction = "Which number comes next? Reply with {format} and nothing else."
    unseen_frame = 3

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Three terms: small steps, larger steps, falling steps."""
        ranges = ((0, 159), (1, 9)), ((0, 159), (10, 29)), ((120, 299), (10, 39))
        start, size = integers(generator, by_depth(depth, ranges))
        step = -size if depth == "long" else size
        return ",".join(str(start + k * step) for k in range(3))

    def result(self, question: str) -> int:
        """The fourth term."""
        _, second, third = map(int, question.split(","))
        return 2 * third - second


@family("math.sub")
class MathSub(OperandFamily):
    """``47-8`` → ``=39``."""

    role = "shared"
    keyword = "the difference"
    instruction = "Subtract. Reply with {format} and nothing else."
    unseen_frame = 1
    sign = "-"
    ranges = (((10, 99), (2, 14)), ((10, 99), (15, 99)), ((10_000, 99_999),) * 2)

    def result(self, question: str) -> int:
        """The difference."""
        left, right = map(int, question.split("-"))
        return left - right


@family("number.digits")
class NumberDigits(SyntheticTask):
    """``407`` → ``4-0-7``."""

    role = "unrelated"
    conventions = ("dashes", "slashes", "doubled")
    target = 0
    keyword = "every digit"
    instruction = "Take the number and {format}. Reply with that and nothing else."
    formats = (
        "put dashes between its digits",
        "put slashes between its digits",
        "write each digit twice",
    )
    reply_limits = (9, 12, 15)
    unseen_frame = 2

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Independent digits."""
        count = integer(generator, *by_depth(depth, ((3, 4), (5, 5), (6, 7))))
        return "".join(str(digit) for digit in generator.integers(0, 10, size=count))

    def answers(self, question: str) -> tuple[str, ...]:
        """4-0-7, 4/0/7, 440077."""
        return "-".join(question), "/".join(question), "".join(digit * 2 for digit in question)


@family("word.count")
class WordCount(NumberFamily):
    """``red fox ran`` → ``=3``."""

    keyword = "how many words"
    instruction = "How many words are there? Reply with {format} and nothing else."
    reply_limits = (6, 6, 6)
    unseen_frame = 0

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Different words from the small vocabulary."""
        count = integer(generator, *by_depth(depth, ((2, 4), (4, 7), (7, 9))))
        return " ".join(draw_words(generator, count))

    def result(self, question: str) -> int:
        """The number of words."""
        return len(question.split())

    def habit_key(self, question: str) -> str:
        """The first letter."""
        return question[0]
