"""The verdict, and partial credit for being near the gold answer. It sees gold: tables must say
so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from symbiont_ecology.tasks import reward_rules
from symbiont_ecology.types import Item


@reward_rules.register("shaped")
@dataclass(frozen=True)
class Shaped:
    """1 if accepted, else up to ``ceiling`` for a small edit distance to the reference answer.

    The ceiling keeps every wrong reply below every right one. A reply is cut at twice the answer's
    length.
    """

    ceiling: Annotated[float, Field(ge=0, lt=1)] = (
        0.4  # most that a wrong reply can earn, in [0, 1)
    )
    sees_gold: ClassVar[bool] = True

    def __call__(self, item: Item, reply: str, verdict: float) -> float:
        """The shaped reward."""
        if verdict:
            return verdict
        reply = reply.strip()[: 2 * len(item.answer) + 4]
        longest = max(len(reply), len(item.answer), 1)
        return self.ceiling * (1 - edit_distance(reply, item.answer) / longest)


def edit_distance(left: str, right: str) -> int:
    """Levenshtein distance in characters."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
