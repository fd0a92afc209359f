"""Shifts for studies: other depths, words and families.

Wordings and conventions belong to synthetic tasks; other tasks have one only, so the shifts that
change these leave them out.
"""

from __future__ import annotations

from collections.abc import Callable

from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.items import draw_items
from symbiont_ecology.evaluate.shifts import shifts
from symbiont_ecology.tasks import Task, tasks
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import CONVENTIONS, SyntheticTask


@shifts.function("depth")
def depth(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """The run's tasks at their hardest depth, unless the run met it."""
    items: list[Item] = []
    for task in mixture.families.values():
        hardest = task.depths[-1]
        if hardest not in mixture.depths_of(task):
            items += draw_items(TaskMixture((task,), (hardest,)), per_cell, seed, split)
    return items


@shifts.function("wording")
def wording(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """The run's hardest cells in words that no adapter and no router learned from."""
    reworded = _hardest(mixture, lambda task: task.in_style(task.style.reworded()))
    return draw_items(reworded, per_cell, seed, split)


@shifts.function("shared-families")
def shared_families(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """Families that no adapter met, of convention groups that were met."""
    return draw_items(_other_families(mixture, "shared"), per_cell, seed, split)


@shifts.function("unrelated-families")
def unrelated_families(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """Families that no adapter met, with conventions of their own."""
    return draw_items(_other_families(mixture, "unrelated"), per_cell, seed, split)


@shifts.function("composition")
def composition(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """Families whose convention the host itself never met: two known ones in one."""
    return draw_items(_other_families(mixture, "composition"), per_cell, seed, split)


@shifts.function("ceiling")
def ceiling(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """The run's cells with the wanted convention told: what the host can do when it knows."""
    cued = tuple(task.in_style(task.style.cued()) for task in _synthetic(mixture))
    return draw_items(TaskMixture(cued, mixture.depths), per_cell, seed, split)


@shifts.function("retention")
def retention(mixture: TaskMixture, per_cell: int, seed: int, split: Split) -> list[Item]:
    """The hardest cells with another convention told: what the host obeys, and learning may undo.

    The two conventions that are not the target take turns.
    """
    cued = _hardest(mixture, lambda task: task.in_style(task.style.cued()))
    items = []
    for index, item in enumerate(draw_items(cued, per_cell, seed, split)):
        task = cued.families[item.family]
        assert isinstance(task, SyntheticTask)
        variants = [variant for variant in range(CONVENTIONS) if variant != task.target]
        other = task.in_variant(variants[index % len(variants)])
        items.append(other.item(item.question, item.depth))
    return items


def _synthetic(mixture: TaskMixture) -> list[SyntheticTask]:
    return [task for task in mixture.families.values() if isinstance(task, SyntheticTask)]


def _hardest(mixture: TaskMixture, change: Callable[[SyntheticTask], SyntheticTask]) -> TaskMixture:
    """The synthetic tasks, changed, at the hardest depth that the run met."""
    synthetic = _synthetic(mixture)
    depths = [depth for task in synthetic for depth in mixture.depths_of(task)]
    hardest = max(depths, key=lambda depth: synthetic[0].depths.index(depth)) if depths else ""
    return TaskMixture(tuple(map(change, synthetic)), (hardest,))


def _other_families(mixture: TaskMixture, role: str) -> TaskMixture:
    """Synthetic families of a role that the run did not meet, in the run's style and depths."""
    synthetic, families = _synthetic(mixture), list[Task]()
    for name in tasks.names() if synthetic else ():
        task = tasks.build(name)
        if task.role == role and name not in mixture.names and isinstance(task, SyntheticTask):
            families.append(task.in_style(synthetic[0].style))
    return TaskMixture(tuple(families), mixture.depths)
