"""RandOpt: random adapters around the host, and a vote of the best.

Gan and Isola 2026 (arXiv:2603.12228): around a well-trained model there are many experts, so
guessing finds some. Noise of several sizes is put on the host again and again. The few that score
best in the exam stay, and after the run the routing ``majority`` lets them vote. Nothing is
learned, and nothing inherited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import Decision, Found, Retire
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.strategies import StrategyContext, strategies
from symbiont_ecology.strategies.exams import ExamStrategy, Marks, mean_mark
from symbiont_ecology.types import OrganelleId


@strategies.register("randopt")
@dataclass(frozen=True)
class RandOpt(ExamStrategy):
    """Random search with a committee. Every generation brings ``population`` newcomers.

    It differs from the paper in that noise is a random adapter of the slots' rank, and not on every
    number of the host. The committee of a later generation is the best of all so far.
    """

    population: PositiveInt = 12  # newcomers of a generation
    keep: PositiveInt = 5  # who stays, and votes
    sizes: tuple[PositiveFloat, ...] = (0.1, 0.15)  # standard deviations of B, by turns

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sizes:
            raise ConfigError("strategy.sizes: expected one number or more, got none")

    def founder(self, number: int, context: StrategyContext) -> Found:
        """A newcomer with noise of the size whose turn it is."""
        size = self.sizes[number % len(self.sizes)]
        return replace(super().founder(number, context), b_std=size)

    def select(
        self, marks: Mapping[OrganelleId, Marks], context: StrategyContext
    ) -> list[Decision]:
        """The best stay, of equals the oldest; others come in place of the rest."""
        ranked = sorted(marks, key=lambda name: -mean_mark(marks[name]))
        exits: list[Decision] = [Retire(name, "not among the best") for name in ranked[self.keep :]]
        return exits + self.found(context)
