"""Strategies whose organelles all sit one exam, and what is left to those that select by it.

The exam has the same questions in the whole run. What an organelle earned at each of them stays
known, so nobody is asked twice. Where the world changes, its new questions are asked again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, Found, Organelle, Outcome, Score
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import AskingStrategy, StrategyContext, assignments
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Item, OrganelleId

Marks = Mapping[str, float]
"""What an organelle earned at each question of the exam, by item."""


@dataclass(frozen=True)
class ExamStrategy(AskingStrategy):
    """Everyone sits the exam once. A subclass says in ``select`` who leaves and who is born."""

    population: PositiveInt = 12  # founders
    b_std: NonNegativeFloat = 0.05  # standard deviation of the founders' B
    questions: PositiveFloat = 16  # per cell and exam, on average
    compares_rewards: ClassVar[bool] = True
    offspring = 0  # children of a generation, where a subclass has such a knob

    @abstractmethod
    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """What follows once everyone alive, in order of birth, has all marks."""

    def found(self, context: StrategyContext) -> list[Decision]:
        """Founders with small random deviations from the host."""
        return [self.founder(number, context) for number in range(self.population)]

    def founder(self, number: int, context: StrategyContext) -> Found:
        """The founder of that number, which it bears as a trait."""
        return Found({NICHE: float(number)}, context.rank, b_std=self.b_std)

    def max_rows(self, tasks: TaskMixture) -> int:
        """The exam of the founders, or that of their children. Where the world changes, all sit it
        again."""
        return max(self.population, self.offspring) * exam_size(tasks, self.questions)

    def exam(self, context: StrategyContext) -> tuple[Item, ...]:
        """The questions of the exam, each once."""
        return tuple({item.id: item for item in exam_questions(context, self.questions)}.values())

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """What is missing of everyone's exam."""
        living = context.state.population.values()
        exam = self.exam(context)
        missing = [(o.id, item) for o in living for item in exam if item.id not in o.marks]
        return [replace(assignment, is_exam=True) for assignment in assignments(missing, 1)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """New marks; and once all are there, what follows from them."""
        living = context.state.population
        if not living:
            return self.found(context)
        ids, earned = [item.id for item in self.exam(context)], rewards_of_exam(context)
        known = {o.id: {**o.marks, **earned.get(o.id, {})} for o in living.values()}
        marks = {
            name: {item: own[item] for item in ids if item in own} for name, own in known.items()
        }
        is_complete = {name: len(own) == len(ids) for name, own in marks.items()}
        scores: list[Decision] = [
            Score(name, fmean(own.values()) if is_complete[name] else None, own)
            for name, own in marks.items()
            if name in earned
        ]
        return scores + (self.select(marks, context) if all(is_complete.values()) else [])


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


def mean_mark(own: Marks) -> float:
    """The score of an exam."""
    return fmean(own.values())
