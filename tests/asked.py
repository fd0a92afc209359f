"""Helpers for tests of evaluations: questions of all kinds, and who of a toy run answers them."""

from __future__ import annotations

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import Cost
from symbiont_ecology.evaluation.evaluator import Answer
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
from symbiont_ecology.evaluation.items import DEFAULT_REPLY_LIMIT, Item
from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.mixture import TaskMixture
from toy import ToyHost

FAMILIES = ("math.add", "string.sort", "logic.bool", "countdown")


def tasks_of(*names: str, style: str = "terse") -> TaskMixture:
    return TaskMixture(names, ("short", "long"), prompt_styles.build(style))


def foreign(number: int = 0, **changes: str) -> Item:
    fields = {
        "prompt": f"capital of {number}?",
        "target": "Paris",
        "family": "geo.capitals",
        "depth": "easy",
    }
    return Item(f"g{number}", reply_limit=DEFAULT_REPLY_LIMIT, **(fields | changes))


def accuracy(candidates: LoadedRun, questions: list[Item], routing: str) -> Evaluation:
    return candidates.evaluate(questions, ToyHost(), routing)


def chosen(candidates: LoadedRun, questions: list[Item], routing: str) -> list[str]:
    return [one.organelle_id for one in accuracy(candidates, questions, routing).rollouts]


def graded(verdicts: list[float], routing: str = "host") -> Evaluation:
    answers = [
        Answer(foreign(number), HOST, "", verdict, Cost(flops=10))
        for number, verdict in enumerate(verdicts)
    ]
    return Evaluation("run", routing, "toy", tuple(answers))
