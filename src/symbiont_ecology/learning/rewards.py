"""Reward rules: what a rollout is worth to learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.learning import RewardRule, reward_rules


@reward_rules.register("verdict")
@dataclass(frozen=True)
class VerdictReward(RewardRule):
    """The verifier's verdict: all that a learner without reference answers can see."""

    follows_verdict: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        """The verdict."""
        return rollout.verdict


@reward_rules.register("shaped")
@dataclass(frozen=True)
class ShapedReward(RewardRule):
    """The verdict, or part of ``ceiling`` if that is more: the smaller the edit distance to the
    reference answer, the larger the part.

    It sees gold answers, and tables must say so. What is less than a full verdict earns less than a
    full verdict. A reply is cut at twice the answer's length and four characters.
    """

    ceiling: Annotated[float, Field(ge=0, lt=1)] = 0.4  # most that nearness earns, in [0, 1)
    sees_gold: ClassVar[bool] = True
    follows_verdict: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        """The shaped reward."""
        answer = rollout.item.answer
        if rollout.verdict >= 1:
            return rollout.verdict
        reply = rollout.text.strip()[: 2 * len(answer) + 4]
        longest = max(len(reply), len(answer), 1)
        nearness = self.ceiling * (1 - edit_distance(reply, answer) / longest)
        return max(rollout.verdict, nearness)


def edit_distance(left: str, right: str) -> int:
    """Levenshtein distance in characters."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
