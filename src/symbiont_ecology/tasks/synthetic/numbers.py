"""Families about numbers: sums, products, sequences, counts."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, family, integer
from symbiont_ecology.tasks.synthetic.words import draw_words


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


@family("math.add")
class MathAdd(NumberFamily):
    """``47+8`` → ``=55``."""

    keyword = "the sum"
    instruction = "Add the numbers: {payload}. Reply with {format} and nothing else."
    unseen_frame = 0

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Summands from large to small, so that a sum and its mirror images are one question."""
        if depth == "long":
            summands = [integer(generator, 100, 999) for _ in range(3)]
        else:
            summands = [
                integer(generator, 10, 99),
                integer(generator, *((2, 14) if depth == "short" else (15, 99))),
            ]
        return "+".join(map(str, sorted(summands, reverse=True)))

    def result(self, question: str) -> int:
        """The sum."""
        return sum(int(summand) for summand in question.split("+"))


@family("add.next")
class AddNext(MathAdd):
    """``47+8`` → ``=56``: math.add, one further."""

    role = "composition"
    convention_group = ""
    conventions = ("the sum", "one further", "one further, plain")
    keyword = "the number after the sum"
    instruction = "Add the numbers {payload} and {format}. Reply with that and nothing else."
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
    instruction = "Which is the largest of {payload}? Reply with {format} and nothing else."
    reply_limits = (6, 6, 6)
    unseen_frame = 4

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Four digits, three numbers of two digits, or five of them."""
        low, high, count = {"short": (0, 9, 4), "medium": (10, 99, 3), "long": (10, 99, 5)}[depth]
        return " ".join(str(integer(generator, low, high)) for _ in range(count))

    def result(self, question: str) -> int:
        """The maximum."""
        return max(int(number) for number in question.split())


@family("math.multiply")
class MathMultiply(NumberFamily):
    """``23*4`` → ``=92``."""

    keyword = "the product"
    instruction = "Multiply: {payload}. Reply with {format} and nothing else."
    reply_limits = (8, 8, 9)
    unseen_frame = 2

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """The larger factor comes first."""
        left = integer(generator, *by_depth(depth, ((100, 999), (11, 99), (100, 999))))
        right = integer(generator, *by_depth(depth, ((2, 9), (11, 99), (11, 99))))
        return f"{max(left, right)}*{min(left, right)}"

    def result(self, question: str) -> int:
        """The product."""
        left, right = question.split("*")
        return int(left) * int(right)


@family("math.sequence")
class MathSequence(NumberFamily):
    """``4,7,10`` → ``=13``."""

    keyword = "the next term"
    instruction = "Which number comes next: {payload}? Reply with {format} and nothing else."
    unseen_frame = 3

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Three terms: small steps, larger steps, falling steps."""
        if depth == "short":
            start, step = integer(generator, 0, 159), integer(generator, 1, 9)
        elif depth == "medium":
            start, step = integer(generator, 0, 159), integer(generator, 10, 29)
        else:
            start, step = integer(generator, 120, 299), -integer(generator, 10, 39)
        return ",".join(str(start + k * step) for k in range(3))

    def result(self, question: str) -> int:
        """The fourth term."""
        _, second, third = (int(term) for term in question.split(","))
        return 2 * third - second


@family("math.sub")
class MathSub(NumberFamily):
    """``47-8`` → ``=39``."""

    role = "shared"
    keyword = "the difference"
    instruction = "Subtract: {payload}. Reply with {format} and nothing else."
    unseen_frame = 1

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """The larger number comes first; long ones have five digits."""
        if depth == "long":
            pair = integer(generator, 10_000, 99_999), integer(generator, 10_000, 99_999)
        else:
            pair = (
                integer(generator, 10, 99),
                integer(generator, *((2, 14) if depth == "short" else (15, 99))),
            )
        return f"{max(pair)}-{min(pair)}"

    def result(self, question: str) -> int:
        """The difference."""
        left, right = question.split("-")
        return int(left) - int(right)


@family("number.digits")
class NumberDigits(SyntheticTask):
    """``407`` → ``4-0-7``."""

    role = "unrelated"
    conventions = ("dashes", "slashes", "doubled")
    target = 0
    keyword = "every digit"
    instruction = "Take the number {payload} and {format}. Reply with that and nothing else."
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
    instruction = "How many words are in: {payload}? Reply with {format} and nothing else."
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
