"""Items of every family for contract tests, the same ones every time."""

from __future__ import annotations

from functools import cache

import pytest

from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask


@cache
def family_of(name: str) -> SyntheticTask:
    """A synthetic family, as it is registered."""
    family = tasks.build(name)
    assert isinstance(family, SyntheticTask)
    return family


FAMILIES = tuple(name for name in tasks.names() if issubclass(tasks[name], SyntheticTask))
every_family = pytest.mark.parametrize("name", FAMILIES)


def items(
    name: str, depth: str, count: int = 12, convention: int | None = None, split: Split = "train"
) -> list[Item]:
    """A few items of a cell, the same ones every time."""
    family, generator = family_of(name), Draw(11)("contract", name, depth, split)
    family = family if convention is None else family.in_variant(convention)
    return [family.sample(depth, generator, split=split) for _ in range(count)]


def families(role: str) -> list[SyntheticTask]:
    """All families of a role."""
    return [family for name in FAMILIES if (family := family_of(name)).role == role]
