"""Composition: letters in order *and* in capitals, a convention that pre-training never showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.families.string_sort import StringSort
from symbiont_ecology.tasks.family import Role


@task_families.register("sort.upper")
@dataclass(frozen=True)
class SortUpper(StringSort):
    """``kqa`` → ``AKQ``: string.sort with the case group's target."""

    name: ClassVar[str] = "sort.upper"
    role: ClassVar[Role] = "composition"
    group: ClassVar[str] = "sort.upper"
    conventions: ClassVar[tuple[str, str, str]] = (
        "capitals as they are",
        "ascending",
        "ascending capitals",
    )
    keyword: ClassVar[str] = "the capitals in order"
    formats: ClassVar[tuple[str, str, str]] = (
        "the letters as they are, in capitals",
        "the letters sorted from a to z",
        "the letters sorted from a to z, in capitals",
    )

    def answers(self, payload: str) -> tuple[str, str, str]:
        """Capitals unsorted, sorted letters, sorted capitals."""
        ascending = "".join(sorted(payload))
        return payload.upper(), ascending, ascending.upper()
