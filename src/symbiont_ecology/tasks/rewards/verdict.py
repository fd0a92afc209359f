"""The binary verdict of the family's verifier: all that a learner without gold answers can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.tasks import reward_rules
from symbiont_ecology.types import Item


@reward_rules.register("verdict")
@dataclass(frozen=True)
class VerdictReward:
    """1 if the verifier accepts the reply, else 0."""

    sees_gold: ClassVar[bool] = False

    def __call__(self, item: Item, reply: str, verdict: float) -> float:
        """The verdict."""
        return verdict
