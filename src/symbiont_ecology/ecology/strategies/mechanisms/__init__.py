"""Mechanisms make a population an ecology: births, merges, upheavals.

Mechanisms act one after the other in every generation, each on what the state says and on the
places that those before it left. They decide and never do: decisions are values. An ablation is a
config without one. A mechanism of one's own is one new file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.types import Item, OrganelleId
from symbiont_ecology.ecology import Decision
from symbiont_ecology.ecology.strategies import StrategyContext, Want, World


@dataclass(frozen=True)
class Room:
    """Room that a strategy leaves to a mechanism: ``places`` and units of LoRA rank that may still
    be filled, both >= 0, and the ``traits`` of newcomers without parents."""

    places: int
    ranks: int
    traits: Mapping[str, float]


class Mechanism:
    """Frozen. By default it decides nothing. Its ``wants``, ``worlds`` and ``phrases`` are like
    those of a strategy."""

    wants: ClassVar[frozenset[Want]] = frozenset()
    worlds: ClassVar[frozenset[World]] = frozenset({"cells", "users"})
    phrases: tuple[str, ...] = ()

    def check(self, rank: int, host: str) -> None:
        """Check, before the host is loaded, that a new run can be founded on it at this LoRA rank.

        Raises:
            EcologyError: it cannot.
        """

    def found(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """Return the founders; nobody leaves it to others, and to the strategy."""
        return ()

    def taker(self, item: Item, context: StrategyContext, earlier: int = 0) -> OrganelleId | None:
        """Return who takes a question, which may be the bare host; None leaves it to others, and to
        the allocator. ``earlier`` questions of its user were given out in this generation."""
        return None

    def tell(self, context: StrategyContext, room: Room) -> Sequence[Decision]:
        """Return what follows from the outcomes, which the state's posteriors and ledger already
        show."""
        return ()


mechanisms: Registry[Mechanism] = Registry(
    "mechanism", "symbiont_ecology.ecology.strategies.mechanisms"
)
