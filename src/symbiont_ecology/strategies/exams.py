"""Strategies whose organelles all sit one exam, and what is left to those that select by it.

The exam has the same questions in the whole run. What an organelle earned at each of them stays
known, so nobody is asked twice. Where the world changes, its new questions are asked again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from statistics import fmean

from symbiont_ecology.ecology import Organelle, Outcome, Score
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Item, OrganelleId


def has_sat(one: Organelle | Score, exam: Collection[Item]) -> bool:
    """Whether a score is about questions of this exam. Where the world changes, an exam has others,
    and what was earned before says nothing."""
    return bool(one.marks) and one.marks.keys() <= {item.id for item in exam}


def exam_questions(context: StrategyContext, count: float) -> tuple[Item, ...]:
    """About so many questions of every cell, the same in the whole run."""
    draw, tasks = Draw(context.state.seed), context.tasks
    each = exam_size(tasks, count) // len(tasks.cells)
    return tuple(
        item for cell in tasks.cells for item in tasks.draw(cell, each, draw("exam", *cell))
    )


def exam_size(tasks: TaskMixture, count: float) -> int:
    """How many questions an exam has, with about so many of every cell."""
    return len(tasks.cells) * max(round(count), 1)


def rewards_by_question(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """The mean reward at each question; two habitats that ask the same have two questions."""
    return {
        f"{item.id}{item.habitat}": fmean(rollout.reward for rollout in rollouts)
        for outcome in outcomes
        for item, rollouts in outcome.by_item()
        if rollouts
    }


def rewards_of_exam(context: StrategyContext) -> dict[OrganelleId, dict[str, float]]:
    """What those who sat an exam in this generation earned at each question."""
    exams: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in context.outcomes:
        if outcome.assignment.is_exam:
            exams[outcome.assignment.organelle_id].append(outcome)
    return {name: rewards_by_question(outcomes) for name, outcomes in exams.items()}
