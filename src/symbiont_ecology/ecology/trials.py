"""A trial is an organelle facing items; an outcome is what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from symbiont_ecology.economics import Cost
from symbiont_ecology.types import Cell, Item, OrganelleId

Purpose = Literal["practice", "probe"]
"""*practice* is paid, learned from and believed; a *probe* only informs."""


@dataclass(frozen=True)
class Trial:
    """One organelle (or the bare host) answers each of the items ``samples`` times. All of one cell."""

    who: OrganelleId
    items: tuple[Item, ...]
    samples: int = 1
    purpose: Purpose = "practice"

    @property
    def cell(self) -> Cell:
        """The cell that all items belong to."""
        return self.items[0].cell


@dataclass(frozen=True)
class Outcome:
    """A judged trial. Rollouts are in the order: all samples of the first item, of the second, …

    ``completions`` are token ids, end-of-answer included; ``rewards`` are the verdicts.
    """

    trial: Trial
    texts: tuple[str, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    cost: Cost

    def groups(self) -> Iterator[tuple[Item, range]]:
        """Each item with the positions of its rollouts."""
        for index, item in enumerate(self.trial.items):
            yield item, range(index * self.trial.samples, (index + 1) * self.trial.samples)

    @property
    def mean_reward(self) -> float:
        """Mean verdict over all rollouts."""
        return sum(self.rewards) / len(self.rewards)
