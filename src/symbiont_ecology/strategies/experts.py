"""Strategies that begin with experts: founders learn a family each, and then breed.

Published methods that merge adapters start from fine-tuned ones. Here these are made in the same
run, under the same meter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import NonNegativeInt, PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, Found, Organelle
from symbiont_ecology.strategies import CurriculumStrategy, StrategyContext, assignments
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.strategies.exams import ExamStrategy
from symbiont_ecology.tasks.mixture import TaskMixture


@dataclass(frozen=True)
class ExpertStrategy(ExamStrategy, CurriculumStrategy):
    """Founders go to school before their exam: each learns the questions of one family, in turn, by
    the run's learning rule. With ``schooling: 0``, pair it with ``learning_rule: none``.

    Who is founded anew, after a catastrophe or a NaN, goes to school, too, and everyone waits for
    it.
    """

    population: PositiveInt = 4  # founders
    schooling: NonNegativeInt = 20  # generations in which a founder learns, before its exam
    samples: PositiveInt = 4  # rollouts per question at school; an exam takes one

    def max_rows(self, tasks: TaskMixture) -> int:
        """School, or an exam. Founders of one family answer the same questions."""
        classmates = -(-self.population // len(tasks.names)) if self.schooling else 0
        school = classmates * self.question_count(tasks) * self.samples
        return max(school, super().max_rows(tasks))

    def founder(self, number: int, context: StrategyContext) -> Found:
        """A founder that can learn; with a warm start it begins with that instead of noise."""
        founder = super().founder(number, context)
        b_std = 0.0 if self.warm else founder.b_std
        return replace(founder, traits={**self.traits, **founder.traits}, b_std=b_std)

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """School for founders; then the exam."""
        if not (pupils := self.pupils(context)):
            return super().ask(context)
        names, items = context.tasks.names, self.items(context)
        takers = [
            (pupil.id, item)
            for pupil in pupils
            for item in items
            if item.family == names[int(pupil.genome.traits[NICHE]) % len(names)]
        ]
        return self.sampled(assignments(takers, self.samples), context)

    def tell(self, context: StrategyContext) -> list[Decision]:
        """At school nothing follows, but that who is gone is founded anew."""
        if not self.pupils(context):
            return super().tell(context)
        living = context.state.population.values()
        numbers = {one.genome.traits.get(NICHE) for one in living}
        missing = [number for number in range(self.population) if number not in numbers]
        return [self.founder(number, context) for number in missing]

    def pupils(self, context: StrategyContext) -> list[Organelle]:
        """Founders that still learn."""
        now, living = context.state.generation, context.state.population.values()
        # The first are there before generation 0, others come at the end of one.
        ages = {one.id: now - one.born - (one.born > 0) for one in living}
        return [one for one in living if not one.parents and ages[one.id] < self.schooling]
