"""The world's demand: which cells there are, and how their items are drawn, asked and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from symbiont_ecology.config import Flip
from symbiont_ecology.tasks import PromptStyle, TaskFamily, WrittenFamily, task_families
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import Cell, Depth, Item


@dataclass(frozen=True)
class TaskMixture:
    """Every combination of the families and depths is a cell, all in demand alike."""

    names: tuple[str, ...]
    depths: tuple[Depth, ...]
    style: PromptStyle
    flip: Flip | None = None
    is_flipped: bool = False
    written: tuple[WrittenFamily, ...] = ()
    """Families that are data: those whose name no task family has."""

    @cached_property
    def families(self) -> dict[str, TaskFamily]:
        """The families by name."""
        written = {family.name: family for family in self.written}
        return {
            name: written[name] if name in written else task_families.build(name)
            for name in self.names
        }

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All (family, depth), families outermost."""
        return tuple((name, depth) for name in self.names for depth in self.depths)

    def draw(
        self, cell: Cell, count: int, generator: np.random.Generator, split: Split = "train"
    ) -> tuple[Item, ...]:
        """``count`` items of a cell, with replacement, in the convention that is in force."""
        family, depth = self.families[cell[0]], cell[1]
        convention = self.convention(family.name)
        return tuple(
            family.sample(depth, generator, split=split, convention=convention)
            for _ in range(count)
        )

    def at(self, flops: float) -> TaskMixture:
        """The mixture as it is when so many training FLOPs are spent."""
        return self if self.flip is None else replace(self, is_flipped=self.flip.holds(flops))

    def convention(self, name: str) -> int:
        """The convention in which a family is judged now."""
        family = self.families[name]
        if self.is_flipped and self.flip is not None and name in self.flip.families:
            return family.rarest
        return family.target

    def prompt(self, item: Item) -> str:
        """The item as the host is asked it."""
        return self.style.render(self.families[item.family], item)

    def reply_limit(self, item: Item) -> int:
        """Most new tokens for a reply to the item."""
        return self.families[item.family].reply_limit(item.depth) + self.style.extra_tokens

    def verify(self, item: Item, reply: str) -> float:
        """The verdict on a reply."""
        return self.families[item.family].verify(item, reply)
