"""Ways of evolving adapters on the one engine: who lives, who meets what, and what follows. One per file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from symbiont_ecology.ecology import Decision, EcologyState, Outcome, Trial
from symbiont_ecology.economics import Prices
from symbiont_ecology.registry import Registry
from symbiont_ecology.rng import Draw
from symbiont_ecology.routing.allocators import Allocator
from symbiont_ecology.tasks.mixture import TaskMixture


@dataclass(frozen=True)
class Scene:
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

    def found(self, scene: Scene) -> Sequence[Decision]:
        """The founding population."""

    def ask(self, state: EcologyState, scene: Scene, draw: Draw) -> Sequence[Trial]:
        """Who faces which items in this generation."""

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, draw: Draw
    ) -> Sequence[Decision]:
        """What follows from the judged trials, which the state's beliefs and ledger already reflect."""


strategies: Registry[Strategy] = Registry("strategy", "symbiont_ecology.strategies")
