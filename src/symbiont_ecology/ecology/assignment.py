"""A trial is an organelle facing items; an outcome is what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from symbiont_ecology.economics import Cost
from symbiont_ecology.types import Cell, Item, OrganelleId
from symbiont_ecology.weights.traces import Trace, Traces

Purpose = Literal["practice", "probe", "probation"]
"""*practice* is paid, learned from and believed; a *probe* only informs; *probation* compares a
child with its parents, who pay for it."""


@dataclass(frozen=True)
class Assignment:
    """One organelle (or the bare host) answers each of the items ``samples`` times. All of one
    cell."""

    organelle_id: OrganelleId
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

    ``completions`` are token ids, end-of-answer included; ``verdicts`` are in [0, 1].
    """

    trial: Assignment
    texts: tuple[str, ...]
    completions: tuple[tuple[int, ...], ...]
    verdicts: tuple[float, ...]
    cost: Cost
    traces: Traces | None = field(default=None, compare=False, repr=False)
    """Of the whole batch, under a rule that perturbs: it goes when the generation does."""
    first: int = field(default=0, compare=False)
    """The row of the batch in which its rollouts begin: of the batch, like ``traces``, not of the
    trial."""

    def groups(self) -> Iterator[tuple[Item, range]]:
        """Each item with the positions of its rollouts."""
        for index, item in enumerate(self.trial.items):
            yield item, range(index * self.trial.samples, (index + 1) * self.trial.samples)

    def trace(self, place: int) -> Trace | None:
        """What one rollout left behind, if anything."""
        return None if self.traces is None else Trace(self.traces, self.first + place)

    @property
    def accuracy(self) -> float:
        """Mean verdict over all rollouts."""
        return sum(self.verdicts) / len(self.verdicts)
