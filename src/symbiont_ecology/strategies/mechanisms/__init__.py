"""What makes a population an ecology: births, merges, upheavals. One mechanism per file.

Mechanisms act one after the other in every generation, each on what the state says and on the
places that those before it left. They decide and never do: decisions are values. An ablation is a
config without one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symbiont_ecology.ecology import Assignment, Decision
from symbiont_ecology.registry import Registry
from symbiont_ecology.strategies import StrategyContext


@dataclass(frozen=True)
class Room:
    """What a strategy leaves to a mechanism."""

    places: int
    """Organelles that may still be added, >= 0."""
    ranks: int
    """Units of LoRA rank that may still be added, >= 0."""
    traits: Mapping[str, float]
    """Of newcomers without parents."""


class Mechanism:
    """Frozen. By default it neither asks anything nor decides anything."""

    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """Questions of its own, beside those of practice."""
        return ()

    def tell(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """What follows from the outcomes, which the state's posteriors and ledger already show."""
        return ()


mechanisms: Registry[Mechanism] = Registry("mechanism", "symbiont_ecology.strategies.mechanisms")
