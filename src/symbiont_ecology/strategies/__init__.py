"""Ways of evolving adapters on the one engine: who lives, who meets what, and what follows. One per
file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Outcome
from symbiont_ecology.economics import Prices
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


class Strategy(Protocol):
    """Frozen. It decides; it never touches the host, never evaluates, never changes the state."""

    is_mortal: ClassVar[bool]
    """Whether the bankrupt die."""

    def found(self, scene: StrategyContext) -> Sequence[Decision]:
        """The founding population."""

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """Who faces which items in this generation."""

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: StrategyContext, draw: Draw
    ) -> Sequence[Decision]:
        """What follows from the judged trials, which the state's beliefs and ledger already
        reflect."""


class Asking:
    """Of a strategy that asks about cells by a curriculum, so many questions each on average."""

    questions: float
    curriculum: Spec

    def __post_init__(self) -> None:
        _ = self.dealer  # a mistake shows before a host is loaded

    @cached_property
    def dealer(self) -> Curriculum:
        """Who says which cells a generation's questions are about."""
        return curricula.build(self.curriculum)

    def demand(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> list[Cell]:
        """The cells that this generation's questions are about, one per question."""
        cells = scene.tasks.cells
        count = max(round(self.questions * len(cells)), 1)
        return self.dealer.demand(cells, state.drift_detectors, count, draw("demand"))


strategies: Registry[Strategy] = Registry("strategy", "symbiont_ecology.strategies")
