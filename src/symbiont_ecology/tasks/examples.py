"""Solved examples of a task: what is shown to a host in front of a question.

They are train questions with their reference answers, fixed for a run, and the same in front of
every question of the task: a host reads them once.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.tasks.task import Task

DRAWS_PER_EXAMPLE = 100
"""Draws for each different example that is wanted; a small task has fewer."""


def solved_examples(task: Task, count: int, seed: int, question: str) -> list[tuple[str, str]]:
    """Return up to ``count`` train questions with their answers, a function of the task's name and
    the seed.

    They never hold the question that is asked: then a spare one stands in its place.
    """
    *examples, spare = _drawn(task, count + 1, seed) or ((question, ""),)
    if len(examples) < count:  # all that there are, and none of them is to spare
        return [pair for pair in (*examples, spare) if pair[0] != question]
    return [spare if pair[0] == question else pair for pair in examples]


@lru_cache(maxsize=256)
def _drawn(task: Task, count: int, seed: int) -> tuple[tuple[str, str], ...]:
    """Return so many different ones, depths by turns, the easiest first."""
    depths = task.trained_depths or task.depths
    generator = Draw(seed)("examples", task.name)
    examples: dict[str, str] = {}
    for turn in range(DRAWS_PER_EXAMPLE * count):
        if len(examples) == count:
            break
        with suppress(DataError):  # data may have no train question of some depth
            question = task.valid_question(depths[turn % len(depths)], generator)
            examples.setdefault(question, task.answer(question))
    return tuple(examples.items())
