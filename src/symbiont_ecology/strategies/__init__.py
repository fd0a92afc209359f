"""Ways of evolving adapters on the one engine: who lives, who meets what, and what follows. One per
file."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Outcome
from symbiont_ecology.economics import Prices
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.learning import LearningRule
from symbiont_ecology.registry import Registry, Spec
from symbiont_ecology.rng import Draw
from symbiont_ecology.routing.allocators import Allocator
from symbiont_ecology.routing.curricula import Curriculum, curricula
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.types import Cell


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy may look at beside the state."""

    tasks: TaskMixture
    prices: Prices
    allocator: Allocator
    rank: int
    """LoRA rank of the slots, the most that an organelle may have."""


class Strategy(ABC):
    """Frozen. It decides; it never touches the host, never evaluates, never changes the state.

    ``is_mortal`` says whether the bankrupt die. ``questions`` are per cell and generation, on
    average; ``samples`` are rollouts per question, and with 0 learning only reads.
    """

    is_mortal: ClassVar[bool] = False
    questions: float = 1
    samples: int = 1

    @abstractmethod
    def found(self, context: StrategyContext) -> Sequence[Decision]:
        """The founding population."""

    @abstractmethod
    def ask(
        self, state: EcologyState, context: StrategyContext, draw: Draw
    ) -> Sequence[Assignment]:
        """Who faces which items in this generation."""

    @abstractmethod
    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], context: StrategyContext, draw: Draw
    ) -> Sequence[Decision]:
        """What follows from the outcomes, which the state's posteriors and ledger already show."""

    def check(self, rank: int, rule: LearningRule) -> None:
        """Whether the strategy fits the host's LoRA rank and the learning rule.

        Raises:
            ConfigError: it does not.
        """
        if self.samples == 0 and not rule.sees_gold:
            raise ConfigError(
                "strategy.samples: 0 asks for no rollouts, and the learning rule learns from "
                "nothing else: set samples, or learning_rule=supervised"
            )

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        """The mechanisms of an ecology, in the order in which they act; others have none."""
        return ()


class CurriculumStrategy(Strategy):
    """A strategy that asks about cells by a curriculum."""

    curriculum: Spec

    def __post_init__(self) -> None:
        _ = self.built_curriculum  # a mistake shows before a host is loaded

    @cached_property
    def built_curriculum(self) -> Curriculum:
        """What says which cells a generation's questions are about."""
        return curricula.build(self.curriculum)

    def demand(self, state: EcologyState, context: StrategyContext, draw: Draw) -> list[Cell]:
        """The cells that this generation's questions are about, one per question."""
        cells = context.tasks.cells
        count = max(round(self.questions * len(cells)), 1)
        return self.built_curriculum.demand(cells, state.drift_detectors, count, draw("demand"))


strategies: Registry[Strategy] = Registry("strategy", "symbiont_ecology.strategies")
