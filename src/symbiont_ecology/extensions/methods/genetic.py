"""A genetic algorithm over LoRA weights, with learning in between if that is wanted.

Everyone alive sits the same exam. The best stay, and their scores with them; the others make room
for children, whose weights are crossed and mutated (Holland 1975; on deep networks, Such et al.
2017, arXiv:1712.06567). Every so many generations the best learns instead (evolution explores, a
gradient refines; Khadka and Tumer 2018, arXiv:1805.07917).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.operators import Merge, Parents, operators, with_arity
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Share, Spec, kind_of
from symbiont_ecology.base.types import TURN_END, OrganelleId
from symbiont_ecology.ecology import (
    Assignment,
    Birth,
    Decision,
    Found,
    Organelle,
    Retire,
    practice_of,
)
from symbiont_ecology.ecology.learning import LearningRule
from symbiont_ecology.ecology.strategies import (
    LearningStrategy,
    StrategyContext,
    assignments,
    strategies,
)
from symbiont_ecology.extensions.methods.exams import (
    Score,
    exam_questions,
    exam_size,
    rewards_of_exam,
    scores_with,
)
from symbiont_ecology.tasks.mixture import TaskMixture

SIGMA, TAU = "sigma", 0.3
"""The trait with the size of a child's mutation, where that is inherited, and the standard
deviation of its logarithm around the parent's."""


@dataclass(frozen=True)
class Offspring(Merge):
    """A crossover of two parents, then a mutation. Where there are ``phrases``, the child has that
    of either parent, or with chance ``rephrase`` any of them."""

    crossover: Spec
    mutation: Spec
    sigma: float | None = None
    phrases: tuple[str, ...] = ()
    rephrase: float = 0.0

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        child = operators.build(self.crossover)(parents, generator)
        mutation: Any = operators.build(self.mutation)
        if self.sigma is not None:
            mutation = replace(mutation, sigma=self.sigma)
        mutated: AdapterWeights = mutation([child], generator)
        if not self.phrases:
            return mutated
        is_new = generator.random() < self.rephrase
        choices = self.phrases if is_new else [parent.phrase for parent in parents]
        return replace(mutated, phrase=choices[int(generator.integers(len(choices)))])


@strategies.register("genetic")
@dataclass(frozen=True)
class Genetic(LearningStrategy):
    """Truncation selection with an elite. Pair it with ``learning_rule: none``, or with a rule and
    ``refine``.

    The exam has the same questions in every generation, so a score stays what it was and no elite
    is asked again, but where the world changes: then everyone sits the exam with its new questions.

    With ``phrases`` a part of a genome is text (prompts evolve in Fernando et al. 2023,
    arXiv:2309.16797). It is read with every question, in the run and after it, and so it is paid
    for.
    """

    population: PositiveInt = 6  # organelles alive
    elite: PositiveInt = 2  # how many of them stay, and are parents
    crossover: Spec = field(default_factory=lambda: "directions")  # operator of two parents
    mutation: Spec = field(default_factory=lambda: {"kind": "gaussian", "sigma": 0.02})  # of one
    b_std: NonNegativeFloat = 0.01  # standard deviation of the founders' B
    is_adaptive: bool = False  # whether the mutation's sigma is inherited and mutates itself
    refine: NonNegativeInt = 0  # generations from one in which the best learns to the next; 0: none
    questions: PositiveFloat = 4  # per cell and exam, on average
    phrases: tuple[str, ...] = ()  # one of them is a gene, and stands in front of every question
    rephrase: Share = 0.1  # chance that a child's phrase is drawn anew
    compares_rewards: ClassVar[bool] = True

    def check(self, rank: int, rule: LearningRule) -> None:
        super().check(rank, rule)
        if self.refine and rule.replay:  # scores of who is changed by it would be of others
            raise ConfigError(
                f"learning_rule.replay: expected 0 where the best learns between exams "
                f"(strategy.refine), got {rule.replay:g}: answers are learned again by others, too"
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        with_arity(self.crossover, 2)
        mutation = with_arity(self.mutation, 1)
        if self.elite >= self.population:
            raise ConfigError(
                f"strategy.elite: expected less than strategy.population ({self.population}), "
                f"which leaves room for children, got {self.elite}"
            )
        if self.refine == 1:
            raise ConfigError(
                "strategy.refine: 1 leaves no generation for evolution: set 2 or more, or "
                "strategy=single"
            )
        if self.is_adaptive and not hasattr(mutation, SIGMA):
            raise ConfigError(
                f"strategy.is_adaptive: expected a mutation with a sigma, such as gaussian, got "
                f"{kind_of(self.mutation)!r}"
            )
        if TURN_END in "".join(self.phrases):
            raise ConfigError("strategy.phrases: expected text without U+001D, which parts turns")

    def max_rows(self, tasks: TaskMixture) -> int:
        lessons = self.question_count(tasks) * self.samples if self.refine else 0
        return max(self.population * exam_size(tasks, self.questions), lessons)

    def found(self, context: StrategyContext) -> list[Decision]:
        b_std, phrases = 0.0 if self.warm else self.b_std, self.phrases or ("",)
        return [
            Found(
                {**self.traits, **self._sigma_of(None, context, number)},
                context.rank,
                b_std=b_std,
                phrase=phrases[number % len(phrases)],
            )
            for number in range(self.population)
        ]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        scored = self._scored(scores_with({}, context), context)
        if scored and self._refines(context):
            return assignments([(scored[0], item) for item in self.items(context)], self.samples)
        exam = exam_questions(context, self.questions)
        sitters = [name for name in context.state.population if name not in scored]
        takers = [(name, item) for name in sitters for item in exam]
        return [replace(assignment, is_exam=True) for assignment in assignments(takers, 1)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        state = context.state
        if not state.population:
            return self.found(context)
        lessons = [one for one in context.outcomes if one.assignment.is_learned_from]
        if lessons:  # who learned is not what it was in the exam; a quarantined one is gone
            learners = practice_of(lessons).keys() & state.population.keys()
            return [Score(name, None) for name in sorted(learners)]
        new = _new_scores(context)
        decisions: list[Decision] = list(new.values())
        order = self._scored(scores_with(new, context), context)
        if len(order) < len(state.population):
            return decisions  # the others answer more in the next generation
        elite, losers = order[: self.elite], order[self.elite :]
        decisions += [Retire(name, "eliminated") for name in losers]
        return decisions + [
            self._child(elite, number, context) for number in range(self.population - len(elite))
        ]

    def _child(self, elite: Sequence[str], number: int, context: StrategyContext) -> Birth:
        """Cross the best with the others of the elite by turns."""
        second = elite[1 + number % (len(elite) - 1)] if len(elite) > 1 else elite[0]
        parents = (elite[0], second)
        parent = context.state.population[parents[0]]
        sigma = self._sigma_of(parent, context, number)
        operator = Offspring(
            self.crossover, self.mutation, sigma.get(SIGMA), self.phrases, self.rephrase
        )
        name = f"{kind_of(self.crossover)} and {kind_of(self.mutation)}"
        return Birth(parents, operator, name, {**parent.genome.traits, **sigma})

    def _sigma_of(
        self, parent: Organelle | None, context: StrategyContext, number: int
    ) -> dict[str, float]:
        """Return the mutation's size as a trait, if it is inherited (Schwefel 1981)."""
        if not self.is_adaptive:
            return {}
        mutation: Any = operators.build(self.mutation)
        sigma = parent.genome.traits[SIGMA] if parent else mutation.sigma
        return {SIGMA: float(sigma * np.exp(TAU * context.draw("sigma", number).standard_normal()))}

    def _refines(self, context: StrategyContext) -> bool:
        """Return true if the best learns in this generation."""
        return self.refine > 0 and context.state.generation % self.refine == self.refine - 1

    def _scored(
        self, scores: Mapping[OrganelleId, Score], context: StrategyContext
    ) -> list[OrganelleId]:
        """Return those whose score is about the exam as it is, the best first."""
        exam = exam_questions(context, self.questions)
        scored = [name for name, one in scores.items() if one.is_about(exam)]
        return sorted(scored, key=lambda name: -(scores[name].score or 0.0))


def _new_scores(context: StrategyContext) -> dict[str, Score]:
    """Return the mean of what everyone earned in this generation's exam."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for outcome in context.outcomes:
        if outcome.assignment.is_exam:
            rewards[outcome.assignment.organelle_id] += [r.reward for r in outcome.rollouts]
    marks = rewards_of_exam(context)
    return {
        name: Score(name, float(sum(earned) / len(earned)), marks[name], len(earned))
        for name, earned in rewards.items()
        if earned
    }
