"""Learning from refusals, without pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from symbiont_ecology.ecology.learning import LearningRule, learning_rules
from symbiont_ecology.ecology.learning.experience import Experience, Targets, WeightedTarget


@learning_rules.register("kto")
@dataclass(frozen=True)
class Kto(LearningRule):
    """Raises accepted answers above the bare host, and lowers refused ones, the less the further
    they are (Kahneman-Tversky optimisation, Ethayarajh et al. 2024, arXiv:2402.01306).

    The reward of an answer is how much likelier it is than by the bare host, in nats per token
    where ``by_token``, times ``beta``. The reference point is taken to be 0.
    """

    beta: PositiveFloat = 0.1  # how fast a lesson fades as the answer moves away from the host
    refused: NonNegativeFloat = 0.3  # weight of a refused answer beside an accepted one
    by_token: bool = False  # rewards are means over tokens, not sums
    needs_host_log_probabilities: ClassVar[bool] = True
    needs_verdicts: ClassVar[bool] = True

    def targets(self, experience: Experience) -> Targets:
        targets = []
        for outcome in experience.outcomes:
            for rollout in outcome.rollouts:
                gaps = rollout.log_probabilities - rollout.host_log_probabilities
                reward = self.beta * float(gaps.mean() if self.by_token else gaps.sum())
                share = 1 / (1 + np.exp(-np.clip(reward, -50, 50)))
                weight = 1.0 if rollout.is_right else -self.refused
                if weight:
                    fading = 4 * share * (1 - share)
                    targets.append(WeightedTarget.of(rollout, float(weight * fading)))
        return targets, experience.notes
