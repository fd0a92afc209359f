"""Control: specialists that never meet. A portfolio without births, merges or prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Found, Outcome
from symbiont_ecology.registry import Spec
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import CurriculumStrategy, StrategyContext, strategies

NICHE = "niche"
"""The trait that says which share of the families a learner has."""


@strategies.register("independent")
@dataclass(frozen=True)
class Independent(CurriculumStrategy):
    """Every learner has families of its own, dealt out in turn, and takes all their questions.

    Nobody breeds or goes bankrupt. What an ecology adds to this is what its economy and its
    evolution add. ``samples: 0`` with supervised learning_rule makes SFT specialists.
    """

    learners: PositiveInt | None = None  # how many; None is one for each family
    questions: PositiveFloat = 1  # per cell and generation, on average
    curriculum: Spec = "unmastered"  # which cells they are about
    samples: NonNegativeInt = 1  # rollouts per question; 0 only reads, for supervised learning_rule
    learning_rate: PositiveFloat = 0.005  # Adam step size, > 0
    aging: NonNegativeFloat = 100.0  # updates after which the step size falls; 0: never

    def found(self, context: StrategyContext) -> Sequence[Decision]:
        """All learners, each of which starts as the host itself (B = 0)."""
        return [self._learner(niche, context) for niche in range(self._count(context))]

    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """To everyone all questions of their own families."""
        owner = {int(o.genome.traits[NICHE]): o.id for o in state.population.values()}
        niches = {
            name: index % self._count(context) for index, name in enumerate(context.tasks.names)
        }
        demand = Counter(self.demand(state, context, draw))
        return [
            Assignment(
                owner[niche], context.tasks.draw(cell, asked, draw("items", *cell)), self.samples
            )
            for cell, asked in demand.items()
            if (niche := niches[cell[0]]) in owner
        ]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], context: StrategyContext, draw: Draw
    ) -> Sequence[Decision]:
        """Nothing follows, unless someone is gone (a NaN, a catastrophe): then that niche is
        founded anew."""
        held = {int(o.genome.traits[NICHE]) for o in state.population.values()}
        return [
            self._learner(niche, context)
            for niche in range(self._count(context))
            if niche not in held
        ]

    def _count(self, context: StrategyContext) -> int:
        return min(self.learners or len(context.tasks.names), len(context.tasks.names))

    def _learner(self, niche: int, context: StrategyContext) -> Found:
        traits = {"learning_rate": self.learning_rate, "aging": self.aging, NICHE: float(niche)}
        return Found(traits, context.rank)
