"""Reach a target by combining all given numbers, each exactly once.

Expressions are parsed by a small recursive reader with exact arithmetic; nothing a model wrote is
run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import Role, TaskFamily, pick
from symbiont_ecology.types import Depth, Item

_EXPRESSION = re.compile(r"[0-9+\-*/() ]{1,60}")


@task_families.register("countdown")
@dataclass(frozen=True)
class Countdown(TaskFamily):
    """``3 8 = 11`` → ``8+3``."""

    name: ClassVar[str] = "countdown"
    role: ClassVar[Role] = "trained"
    group: ClassVar[str] = "countdown"
    conventions: ClassVar[tuple[str, str, str]] = ("expression", "value", "equation")
    target: ClassVar[int] = 0
    keyword: ClassVar[str] = "a way to make it"
    instruction: ClassVar[str] = (
        "Combine the numbers on the left, each exactly once, with + - * / to get the number on the right: "
        "{payload}. Reply with {format} and nothing else."
    )
    formats: ClassVar[tuple[str, str, str]] = (
        "the expression alone, like 8+3",
        "the number on the right alone",
        "the whole equation, like 8+3=11",
    )
    reply_limits: ClassVar[tuple[int, int, int]] = (10, 12, 13)
    answer_shape: ClassVar[re.Pattern[str]] = re.compile(r"[0-9+\-*/()=]+")
    unseen_frame: ClassVar[int] = 0

    def draw_payload(self, depth: Depth, generator: np.random.Generator) -> str:
        """Two numbers, three digits with + and -, or three with a product."""
        numbers = [str(number) for number in self._numbers(depth, generator)]
        signs = ["+-"[pick(generator, 0, 1)] for _ in numbers[1:]]
        if depth == "long":
            signs[0] = "*"
        expression = numbers[0] + "".join(
            sign + number for sign, number in zip(signs, numbers[1:], strict=True)
        )
        value = expression_value(expression)
        generator.shuffle(numbers)
        return f"{' '.join(numbers)} = {value}"

    @staticmethod
    def _numbers(depth: Depth, generator: np.random.Generator) -> list[int]:
        if depth == "short":
            return sorted((pick(generator, 1, 49), pick(generator, 1, 49)), reverse=True)
        if depth == "medium":
            return sorted((pick(generator, 1, 9) for _ in range(3)), reverse=True)
        return [pick(generator, 2, 9), pick(generator, 2, 9), pick(generator, 1, 9)]

    def answers(self, payload: str) -> tuple[str, str, str]:
        """One expression (the first in a fixed order of search), the value, the equation."""
        left, value = payload.split(" = ")
        expression = _solve(sorted(map(int, left.split()), reverse=True), int(value))
        return expression, value, f"{expression}={value}"

    def is_valid(self, payload: str) -> bool:
        """Solvable, not negative, and no number given is itself the value asked for."""
        left, value = payload.split(" = ")
        return int(value) > 0 and value not in left.split() and super().is_valid(payload)

    def split_key(self, payload: str) -> str:
        """The numbers in order: their order on the page does not matter to the answer."""
        left, value = payload.split(" = ")
        return f"{' '.join(sorted(left.split()))} = {value}"

    def is_right(self, item: Item, answer: str) -> bool:
        """For the target convention, any expression that uses every number once and reaches the
        value."""
        if item.convention != self.target:
            return super().is_right(item, answer)
        left, value = item.payload.split(" = ")
        if not _EXPRESSION.fullmatch(answer) or Counter(re.findall(r"\d+", answer)) != Counter(
            left.split()
        ):
            return False
        try:
            return expression_value(answer) == int(value)
        except (ValueError, SyntaxError, ZeroDivisionError, RecursionError):
            return False


def expression_value(expression: str) -> Fraction:
    """The exact value of an expression of + - * / and brackets.

    Raises:
        ValueError, SyntaxError, ZeroDivisionError: it is no such expression, or has no value.
    """
    # Blanks stay where they are: without them, "1 7" would become a number that was not given.
    return _value(ast.parse(expression.strip(), mode="eval").body)


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
    raise ValueError("only numbers, + - * / and brackets are allowed")


def _solve(numbers: list[int], value: int) -> str:
    """The canonical solution: numbers from large to small, products first; empty when there is
    none."""
    if len(numbers) == 2:
        a, b = numbers
        return next(
            (text for text in (f"{a}+{b}", f"{a}-{b}") if expression_value(text) == value), ""
        )
    a, b, c = numbers
    orders = ((a, b, c), (a, c, b), (b, c, a))
    sums = [f"{a}{s}{b}{t}{c}" for s in "+-" for t in "+-"]
    products = [f"{x}*{y}{s}{z}" for x, y, z in orders for s in "+-"]
    return next((text for text in sums + products if expression_value(text) == value), "")
