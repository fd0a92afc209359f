"""Items of every family for contract tests, the same ones every time."""

from __future__ import annotations

from functools import cache

import pytest

from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import SyntheticTask, tasks
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import Depth, Item

every_family = pytest.mark.parametrize("name", tasks.names())
family_of = cache(tasks.build)


def items(
    name: str, depth: Depth, count: int = 12, convention: int | None = None, split: Split = "train"
) -> list[Item]:
    """A few items of a cell, the same ones every time."""
    family, generator = family_of(name), Draw(11)("contract", name, depth, split)
    return [
        family.sample(depth, generator, split=split, convention=convention) for _ in range(count)
    ]


def families(role: str) -> list[SyntheticTask]:
    """All families of a role."""
    return [family for name in tasks.names() if (family := family_of(name)).role == role]
