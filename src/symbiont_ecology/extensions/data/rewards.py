"""Rewards by text: what a reply is worth beside a reference answer.

For strategies that only need to know what is better (es, genetic), and as partial credit for a
policy gradient. Verdicts, revenue and accuracy stay what the verifier says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules


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
        answer = rollout.item.answer
        if rollout.verdict >= 1:
            return rollout.verdict
        reply = rollout.text.strip()[: 2 * len(answer) + 4]
        longest = max(len(reply), len(answer), 1)
        nearness = self.ceiling * (1 - edit_distance(reply, answer) / longest)
        return max(rollout.verdict, nearness)


@reward_rules.register("conciseness")
@dataclass(frozen=True)
class ConcisenessReward(RewardRule):
    """−|length of the reply − length of the reference answer|, in characters: 0 at best (Qiu et al.
    2025, arXiv:2509.24372). What the reply says does not count."""

    sees_gold: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        return -float(abs(len(rollout.text) - len(rollout.item.answer)))


@reward_rules.register("log_probability")
@dataclass(frozen=True)
class LogProbabilityReward(RewardRule):
    """Mean log-probability of a token of the reference answer, its end included, in nats: 0 at
    best. Nobody replies: the answer is read, so even those who would all be wrong differ."""

    sees_gold: ClassVar[bool] = True
    reads: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        return rollout.confidence


def edit_distance(left: str, right: str) -> int:
    """Return the Levenshtein distance in characters."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
