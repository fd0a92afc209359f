"""A reward that people give. The run stops and waits for them (``engine.judgements``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.learning import RewardRule, reward_rules


@reward_rules.register("human")
@dataclass(frozen=True)
class HumanReward(RewardRule):
    """What people say of a reply: ``symbiont judge RUN`` asks them. Equal replies to one question
    are asked once. Verdicts, revenue and accuracy stay what the verifier says."""

    asks_people: ClassVar[bool] = True

    def __call__(self, rollout: Rollout) -> float:
        """The judgement, from 0 (bad) to 1 (good)."""
        assert rollout.judgement is not None, "act brings it, or the run waits"
        return rollout.judgement
