"""Reach a target by combining all given numbers, each exactly once.

Expressions are parsed by a small recursive reader with exact arithmetic; nothing a model wrote is
run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction
from operator import add, mul, sub, truediv

import numpy as np

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.synthetic.family import SyntheticTask, by_depth, integer, integers

FORM_REWARD = 0.1
"""Reward of any arithmetic expression."""
_OPERATIONS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}
_EXPRESSION = re.compile(r"[0-9+\-*/() ]{1,60}")


@tasks.register("countdown")
class Countdown(SyntheticTask):
    """``3 8 = 11`` → ``8+3``."""

    keyword = "a way to make it"
    instruction = (
        "Combine the numbers on the left, each exactly once, with + - * / to get the number on the "
        "right. Reply with {format} and nothing else."
    )
    formats = (
        "the expression alone, like 8+3",
        "the number on the right alone",
        "the whole equation, like 8+3=11",
    )
    reply_limits = (10, 12, 13)
    answer_shape = re.compile(r"[0-9+\-*/()=]+")
    unseen_frame = 0

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Two numbers, three digits with + and -, or three with a product."""
        draws = integers(
            generator, by_depth(depth, (((1, 49),) * 2, ((1, 9),) * 3, ((2, 9), (2, 9), (1, 9))))
        )
        numbers = [str(n) for n in (draws if depth == "long" else sorted(draws, reverse=True))]
        signs = ["+-"[integer(generator, 0, 1)] for _ in numbers[1:]]
        if depth == "long":
            signs[0] = "*"
        pairs = zip(signs, numbers[1:], strict=True)
        value = expression_value(numbers[0] + "".join(sign + number for sign, number in pairs))
        generator.shuffle(numbers)
        return f"{' '.join(numbers)} = {value}"

    def answers(self, question: str) -> tuple[str, ...]:
        """One expression (the first in a fixed order of search), the value, the equation."""
        numbers, value = question.split(" = ")
        expression = _solve(sorted(map(int, numbers.split()), reverse=True), int(value))
        return expression, value, f"{expression}={value}"

    def is_valid(self, question: str) -> bool:
        """Solvable, not negative, and no number given is itself the value asked for."""
        numbers, value = question.split(" = ")
        return int(value) > 0 and value not in numbers.split() and super().is_valid(question)

    def split_key(self, question: str) -> str:
        """The numbers in order: their order on the page does not matter to the answer."""
        numbers, value = question.split(" = ")
        return f"{' '.join(sorted(numbers.split()))} = {value}"

    def is_right(self, question: str, reply: str, right: str) -> bool:
        """For the target convention, any expression that uses every number once and reaches the
        value."""
        if self.convention != self.target:
            return super().is_right(question, reply, right)
        numbers, value = question.split(" = ")
        uses_each_once = sorted(re.findall(r"\d+", reply)) == sorted(numbers.split())
        return uses_each_once and is_expression(reply) and expression_value(reply) == int(value)


@reward_rules.register("countdown")
@dataclass(frozen=True)
class CountdownReward(RewardRule):
    """A tenth for an arithmetic expression, and one for the right one (Pan et al. 2025,
    TinyZero)."""

    def __call__(self, rollout: Rollout) -> float:
        return FORM_REWARD * is_expression(rollout.text.strip()) + rollout.verdict


def is_expression(text: str) -> bool:
    """Return true for a short expression of + - * / and brackets that has a value."""
    try:
        return _EXPRESSION.fullmatch(text) is not None and expression_value(text) is not None
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
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value: Fraction = _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
        return value
    raise ValueError("only numbers, + - * / and brackets are allowed")


def _solve(numbers: list[int], value: int) -> str:
    """The canonical solution: numbers from large to small, products first; empty when there is
    none."""
    a, b, *rest = numbers
    candidates = [f"{a}{s}{b}" for s in "+-"]
    if rest:
        (c,) = rest
        orders = ((a, b, c), (a, c, b), (b, c, a))
        candidates = [f"{text}{t}{c}" for text in candidates for t in "+-"]
        candidates += [f"{x}*{y}{s}{z}" for x, y, z in orders for s in "+-"]
    return next((text for text in candidates if expression_value(text) == value), "")
