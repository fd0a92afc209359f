"""Control: specialists that never meet. A portfolio without births, merges or prices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pydantic import PositiveInt

from symbiont_ecology.ecology import Assignment, Decision, Found
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

    def found(self, context: StrategyContext) -> list[Decision]:
        """Every niche without a learner gets one, which starts as the host itself (B = 0)."""
        held = self._owners(context)
        return [
            Found({**self.traits, NICHE: float(niche)}, context.rank)
            for niche in range(self._count(context))
            if niche not in held
        ]

    def ask(self, context: StrategyContext) -> list[Assignment]:
        """To everyone all questions of their own families."""
        owners, tasks = self._owners(context), context.tasks
        niches = {name: index % self._count(context) for index, name in enumerate(tasks.names)}
        return [
            Assignment(
                owners[niche], tasks.draw(cell, asked, context.draw("items", *cell)), self.samples
            )
            for cell, asked in Counter(self.demand(context)).items()
            if (niche := niches[cell[0]]) in owners
        ]

    def tell(self, context: StrategyContext) -> list[Decision]:
        """Nothing follows, unless someone is gone (a NaN, a catastrophe): then that niche is
        founded anew."""
        return self.found(context)

    def _owners(self, context: StrategyContext) -> dict[int, str]:
        return {int(o.genome.traits[NICHE]): o.id for o in context.state.population.values()}

    def _count(self, context: StrategyContext) -> int:
        return min(self.learners or len(context.tasks.names), len(context.tasks.names))
