"""Helpers for tests of evaluations: questions of all kinds, and who of a toy run answers them."""

from __future__ import annotations

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import Cost
from symbiont_ecology.evaluation.answers import Answer
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
from symbiont_ecology.evaluation.questions import DEFAULT_REPLY_LIMIT, Question
from symbiont_ecology.tasks import prompt_styles
from symbiont_ecology.tasks.mixture import TaskMixture
from toy import ToyHost

FAMILIES = ("math.add", "string.sort", "logic.bool", "countdown")


def tasks_of(*names: str, style: str = "terse") -> TaskMixture:
    return TaskMixture(names, ("short", "long"), prompt_styles.build(style))


def foreign(number: int = 0, **changes: str) -> Question:
    fields = {
        "prompt": f"capital of {number}?",
        "target": "Paris",
        "family": "geo.capitals",
        "depth": "easy",
    }
    return Question(f"g{number}", reply_limit=DEFAULT_REPLY_LIMIT, **(fields | changes))


def accuracy(candidates: LoadedRun, questions: list[Question], routing: str) -> Evaluation:
    return candidates.evaluate(questions, ToyHost(), routing)


def chosen(candidates: LoadedRun, questions: list[Question], routing: str) -> list[str]:
    return [one.organelle_id for one in accuracy(candidates, questions, routing).answers]


def graded(verdicts: list[float], routing: str = "host") -> Evaluation:
    answers = [
        Answer(foreign(number), HOST, "", verdict, Cost(flops=10))
        for number, verdict in enumerate(verdicts)
    ]
    return Evaluation("run", routing, "toy", tuple(answers))
