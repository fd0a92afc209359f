"""Shifts: ways in which an item can differ from what was learned. One function each.

In distribution are the tasks, depths and words of the run, with questions that nobody met. Every
other shift differs from that in one respect. Items come from the holdout split, unless told
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.items import draw_items
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split


class Shift(Protocol):
    """From the mixture of a run to items."""

    def __call__(self, mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
        """Return ``per_cell`` items of every cell; the same for a seed."""


shifts: Registry[Shift] = Registry("shift", "symbiont_ecology.evaluate.shifts")


def draw_shifts(
    mixture: TaskMixture,
    names: Sequence[str],
    per_cell: int,
    seed: int = 0,
    split: Split = "holdout",
) -> list[Item]:
    """Return items of all the named shifts, each of which says its shift; the same for a seed."""
    return [
        replace(item, shift=name)
        for name in names
        for item in shifts.build(name)(mixture, per_cell, seed, split)
    ]


@shifts.function("in-distribution")
def in_distribution(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """The run's own cells and words."""
    return draw_items(mixture, per_cell, seed, split)


@shifts.function("users", "habitats")
def users(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """Questions of every user, as they judge in the mixture's generation: ``per_cell`` of each.
    Without users there are none."""
    if mixture.users is None:
        return []
    return list(mixture.users.drawn(per_cell, seed, split, mixture.generation))
