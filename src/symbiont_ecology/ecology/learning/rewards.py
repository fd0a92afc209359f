"""Reward rules: what a rollout is worth to learning. Rewards by other metrics are in
``extensions.data.rewards``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from symbiont_ecology.base.fence import FaultError, Faults, Fence
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import RewardRule, reward_rules

MAX_REWARD = 1e6
"""Of one answer; beyond that, sums lose what tells answers apart."""


@reward_rules.register("verdict")
@dataclass(frozen=True)
class VerdictReward(RewardRule):
    """The verifier's verdict: all that a learner without reference answers can see."""

    follows_verdict: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
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


def worths(rollouts: Sequence[Rollout], reward: RewardRule, faults: Faults) -> list[float]:
    """Return what each rollout is worth to learning.

    One for which the reward fails is worth as much as the worst of the others: whoever breaks a
    reward must gain nothing by it.
    """
    rewards, part = list[float | None](), reward_rules.called(reward)
    with Fence() as fence:
        for rollout in rollouts:
            try:
                rewards.append(faults.counted(fence, part, _worth, reward, rollout))
            except FaultError:
                rewards.append(None)
    worst = min((worth for worth in rewards if worth is not None), default=0.0)
    return [worst if worth is None else worth for worth in rewards]


def _worth(reward: RewardRule, rollout: Rollout) -> float:
    """Return what a rollout is worth, if the reward says a number."""
    worth: object = reward(rollout)  # as declared, or as somebody wrote it
    if isinstance(worth, np.bool_ | np.number):
        worth = worth.item()
    if not isinstance(worth, int | float) or not -MAX_REWARD <= worth <= MAX_REWARD:
        most = f"a number from {-MAX_REWARD:g} to {MAX_REWARD:g}"
        raise FaultError(f"returned {worth!r:.60}, expected {most}")
    return float(worth)
