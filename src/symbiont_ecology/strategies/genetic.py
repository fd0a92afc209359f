"""A genetic algorithm over LoRA weights, with learning in between if that is wanted.

Everyone alive sits the same exam. The best stay, and their scores with them; the others make room
for children, whose weights are crossed and mutated (Holland 1975; on deep networks, Such et al.
2017, arXiv:1712.06567). Every so many generations the best learns instead (evolution explores, a
gradient refines; Khadka and Tumer 2018, arXiv:1805.07917).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Assignment, Birth, Decision, Found, Organelle, Retire, Score
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.operators import Merge, Parent, Parents, operators, with_arity
from symbiont_ecology.registry import Spec, kind_of
from symbiont_ecology.strategies import CurriculumStrategy, StrategyContext, assignments, strategies
from symbiont_ecology.strategies.exams import exam_questions
from symbiont_ecology.types import Item
from symbiont_ecology.weights import AdapterWeights

SIGMA, TAU = "sigma", 0.3
"""The trait that says how much a child is mutated, where that is inherited, and the standard
deviation of its logarithm around the parent's."""


@dataclass(frozen=True)
class Offspring(Merge):
    """A crossover of two parents, then a mutation."""

    crossover: Spec
    mutation: Spec
    sigma: float | None = None

    def __call__(self, parents: Parents, generator: Generator) -> AdapterWeights:
        """The child."""
        child = operators.build(self.crossover)(parents, generator)
        mutation: Any = operators.build(self.mutation)
        if self.sigma is not None:
            mutation = replace(mutation, sigma=self.sigma)
        crossed = Parent(child.layout, child.rank, child.scaling, child.vector)
        mutated: AdapterWeights = mutation([crossed], generator)
        return mutated


@strategies.register("genetic")
@dataclass(frozen=True)
class Genetic(CurriculumStrategy):
    """Truncation selection with an elite. Pair it with ``learning_rule: none``, or with a rule and
    ``refine``.

    The exam has the same questions in every generation, so a score stays what it was and no elite
    is asked again; with ``is_fresh`` questions are drawn anew, and everyone sits every exam.
    """

    population: PositiveInt = 6  # organelles alive
    elite: PositiveInt = 2  # how many of them stay, and are parents
    crossover: Spec = field(default_factory=lambda: "directions")  # operator of two parents
    mutation: Spec = field(default_factory=lambda: {"kind": "gaussian", "sigma": 0.02})  # of one
    b_std: NonNegativeFloat = 0.01  # standard deviation of the founders' B
    is_adaptive: bool = False  # whether the mutation's sigma is inherited and mutates itself
    is_fresh: bool = False  # whether every exam has questions of its own
    refine: NonNegativeInt = 0  # generations from one in which the best learns to the next; 0: none
    questions: PositiveFloat = 4  # per cell and exam, on average
    compares_rewards: ClassVar[bool] = True

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

    def found(self, context: StrategyContext) -> list[Decision]:
        """Founders with small random deviations from the host, or from the warm start."""
        b_std = 0.0 if self.warm else self.b_std
        return [
            Found(
                {**self.traits, **self._sigma_of(None, context, number)}, context.rank, b_std=b_std
            )
            for number in range(self.population)
        ]

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """The exam for those without a score; or practice for the best, when it is to learn."""
        living = context.state.population
        best = self._best(context)
        if best and self._refines(context):
            taken = assignments([(best[0].id, item) for item in self.items(context)], self.samples)
            return self.sampled(taken, context)
        candidates = [name for name, one in living.items() if one.score is None or self.is_fresh]
        takers = [(name, item) for name in candidates for item in self._exam(context)]
        return [replace(one, is_exam=True) for one in assignments(takers, 1)]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """New scores; then the worst leave, and children of the best take their places."""
        state = context.state
        if not state.population:
            return self.found(context)
        if self._refines(context) and (best := self._best(context)):
            return [Score(best[0].id, None)]
        scores = {one.id: one.score for one in state.population.values()}
        earned = _mean_rewards(context)
        decisions: list[Decision] = [Score(name, score) for name, score in earned.items()]
        scores |= earned
        if any(score is None for score in scores.values()):
            return decisions  # for want of compute: they sit the exam in the next generation
        order = sorted(scores, key=lambda name: -(scores[name] or 0.0))
        elite, others = order[: self.elite], order[self.elite :]
        decisions += [Retire(name, "eliminated") for name in others]
        return decisions + [
            self._child(elite, number, context) for number in range(self.population - len(elite))
        ]

    def _child(self, elite: Sequence[str], number: int, context: StrategyContext) -> Birth:
        """Of the best and of another one of the elite, by turns."""
        other = elite[1 + number % (len(elite) - 1)] if len(elite) > 1 else elite[0]
        parents = (elite[0], other)
        parent = context.state.population[parents[0]]
        sigma = self._sigma_of(parent, context, number)
        operator = Offspring(self.crossover, self.mutation, sigma.get(SIGMA))
        name = f"{kind_of(self.crossover)} and {kind_of(self.mutation)}"
        return Birth(parents, operator, name, {**parent.genome.traits, **sigma})

    def _sigma_of(
        self, parent: Organelle | None, context: StrategyContext, number: int
    ) -> dict[str, float]:
        """The mutation's size as a trait, if it is inherited (Schwefel 1981)."""
        if not self.is_adaptive:
            return {}
        mutation: Any = operators.build(self.mutation)
        before = parent.genome.traits[SIGMA] if parent else mutation.sigma
        return {
            SIGMA: float(before * np.exp(TAU * context.draw("sigma", number).standard_normal()))
        }

    def _refines(self, context: StrategyContext) -> bool:
        """Whether the best learns in this generation."""
        return self.refine > 0 and context.state.generation % self.refine == self.refine - 1

    def _best(self, context: StrategyContext) -> list[Organelle]:
        """Those with a score, the best first."""
        scored = [one for one in context.state.population.values() if one.score is not None]
        return sorted(scored, key=lambda one: -(one.score or 0.0))

    def _exam(self, context: StrategyContext) -> tuple[Item, ...]:
        """The questions of an exam."""
        if self.is_fresh:
            return self.items(context)
        return exam_questions(context, self.questions)


def _mean_rewards(context: StrategyContext) -> dict[str, float]:
    """What everyone earned in this generation's exam."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for outcome in context.outcomes:
        if outcome.assignment.is_exam:
            rewards[outcome.assignment.organelle_id] += [one.reward for one in outcome.rollouts]
    return {name: float(np.mean(earned)) for name, earned in rewards.items() if earned}
