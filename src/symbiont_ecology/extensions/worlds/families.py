"""More families for the embedded host: those for family shift and composition among them."""

from __future__ import annotations

import numpy as np

from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.families import (
    CaseFamily,
    CodeFormat,
    MathAdd,
    NumberFamily,
    OperandFamily,
    StringSort,
    TextFamily,
    TruthFamily,
)
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, integer, integers


@tasks.register("add.next")
class AddNext(MathAdd):
    """``47+8`` → ``=56``: math.add, one further."""

    role = "composition"
    convention_group = ""
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


@tasks.register("math.multiply")
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


@tasks.register("math.sequence")
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


@tasks.register("math.sub")
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


@tasks.register("number.digits")
class NumberDigits(SyntheticTask):
    """``407`` → ``4-0-7``."""

    role = "unrelated"
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


@tasks.register("string.initials")
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


@tasks.register("string.rotate")
class StringRotate(TextFamily):
    """``kqa`` → ``qak``."""

    role = "unrelated"
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


@tasks.register("sort.upper")
class SortUpper(StringSort):
    """``kqa`` → ``AKQ``: string.sort with the case group's target."""

    role = "composition"
    convention_group = ""
    ignores_case = False
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


@tasks.register("text.swap")
class TextSwap(TextFamily):
    """``red fox`` → ``fox red``."""

    role = "unrelated"
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


@tasks.register("math.compare")
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
        left, right = map(int, question.replace(">", "<").split("<"))
        return left < right if "<" in question else left > right

    def is_valid(self, question: str) -> bool:
        """Equal numbers are left out."""
        left, right = question.replace(">", "<").split("<")
        return left != right


@tasks.register("code.scream")
class CodeScream(CodeFormat):
    """``red_fox`` → ``RED-FOX``: code.format's kebab style with the case group's target."""

    role = "composition"
    convention_group = ""
    keyword = "the loud identifier"
    formats = ("kebab-case", "SCREAMING-KEBAB-CASE", "SCREAMING_SNAKE_CASE")

    def answers(self, question: str) -> tuple[str, ...]:
        """red-fox, RED-FOX, RED_FOX."""
        return question.replace("_", "-"), question.replace("_", "-").upper(), question.upper()
