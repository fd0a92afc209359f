"""Exams: questions that everybody sits, and the scores that organelles keep of them.

An exam has the same questions in the whole run. What an organelle earned at each of them stays
known, so nobody is asked twice. Where the world changes, its new questions are asked again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from symbiont_ecology.base.events import Event, Scored
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, OrganelleId
from symbiont_ecology.ecology import Decision, Organelle, Outcome
from symbiont_ecology.ecology.decisions import ApplyContext
from symbiont_ecology.ecology.organelle import SCORE
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.tasks.mixture import TaskMixture

NOTE = "exam"
"""The note of an organelle in which its exam is kept, beside the score."""


@dataclass(frozen=True)
class Score(Decision):
    """An organelle keeps what it earned in an exam, so that it need not sit it again; or forgets
    it, once its weights are others.

    ``marks`` say what it earned at each question, by item. ``answers`` counts those that the score
    is the mean of, for strategies that go on with it.
    """

    organelle_id: OrganelleId
    score: float | None
    marks: Mapping[str, float] = field(default_factory=dict)
    answers: int = 0

    def apply(self, context: ApplyContext) -> list[Event]:
        state = context.state
        organelle = state.population[self.organelle_id]
        exam: Any = {"marks": dict(self.marks), "answers": self.answers}
        notes = {**organelle.notes, SCORE: self.score, NOTE: exam}
        state.population[organelle.id] = replace(organelle, notes=notes)
        if self.score is None:
            return []
        return [Scored(state.generation, organelle.id, self.score)]

    @classmethod
    def of(cls, organelle: Organelle) -> Score:
        """Return what an organelle has noted of its exam."""
        exam: Any = organelle.notes.get(NOTE, {})
        return cls(organelle.id, organelle.score, **exam)

    def is_about(self, exam: Collection[Item]) -> bool:
        """Return true if the score is about questions of this exam. Where the world changes, an
        exam has others, and what was earned before says nothing."""
        return bool(self.marks) and self.marks.keys() <= {item.id for item in exam}


def scores_with(new: Mapping[OrganelleId, Score], context: StrategyContext) -> dict[str, Score]:
    """Return the scores of everyone alive, by id: the new ones, and those that were noted."""
    living = context.state.population
    return {name: new.get(name) or Score.of(one) for name, one in living.items()}


def exam_questions(context: StrategyContext, count: float) -> tuple[Item, ...]:
    """Draw about so many questions of every cell, the same in the whole run."""
    draw, tasks = Draw(context.state.seed), context.tasks
    each = exam_size(tasks, count) // len(tasks.cells)
    return tuple(
        item for cell in tasks.cells for item in tasks.draw(cell, each, draw("exam", *cell))
    )


def exam_size(tasks: TaskMixture, count: float) -> int:
    """Return the number of questions of an exam with about so many of every cell."""
    return len(tasks.cells) * max(round(count), 1)


def rewards_by_question(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return the mean reward at each question."""
    return {
        item.id: float(fmean(rollout.reward for rollout in rollouts))
        for outcome in outcomes
        for item, rollouts in outcome.by_item()
        if rollouts
    }


def rewards_of_exam(context: StrategyContext) -> dict[OrganelleId, dict[str, float]]:
    """Return what those who sat an exam in this generation earned at each question."""
    exams: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in context.outcomes:
        if outcome.assignment.is_exam:
            exams[outcome.assignment.organelle_id].append(outcome)
    return {name: rewards_by_question(outcomes) for name, outcomes in exams.items()}
