"""Rewards: what a rollout is worth to learning. Here it is its verdict, the only reward without
gold answers; more of them are in an extension (``data``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from symbiont_ecology.base.fence import FaultError, Faults
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


def rewarded(rollouts: Sequence[Rollout], reward: RewardRule, faults: Faults) -> list[Rollout]:
    """Return the same rollouts with what each is worth to learning.

    One for which the reward fails is worth as much as the worst of the others: whoever breaks a
    reward must gain nothing by it.
    """
    rewards, part = list[float | None](), reward_rules.called(reward)
    for rollout in rollouts:
        try:
            rewards.append(faults.call(part, _worth, reward, rollout))
        except FaultError:
            rewards.append(None)
    worst = min((worth for worth in rewards if worth is not None), default=0.0)
    return [
        replace(rollout, reward=worst if worth is None else worth)
        for rollout, worth in zip(rollouts, rewards, strict=True)
    ]


def _worth(reward: RewardRule, rollout: Rollout) -> float:
    """Return what a rollout is worth, if the reward says a number."""
    worth: object = reward(rollout)  # as declared, or as somebody wrote it
    if isinstance(worth, np.bool_ | np.number):
        worth = worth.item()
    if not isinstance(worth, int | float) or not -MAX_REWARD <= worth <= MAX_REWARD:
        most = f"a number from {-MAX_REWARD:g} to {MAX_REWARD:g}"
        raise FaultError(f"returned {worth!r:.60}, expected {most}")
    return float(worth)
