"""A learning rule of one's own: GRPO with a KL term that keeps an adapter near the host.

Advantages are rewards against the other samples of the same question, in units of their spread
(Shao et al. 2024, arXiv:2402.03300). The KL penalty is the estimator of the k1 kind, token by
token: log p(token) − log p_host(token).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from symbiont_ecology.ecology.learning import (
    Experience,
    LearningRule,
    Targets,
    WeightedTarget,
    learning_rules,
)


@learning_rules.register("grpo_kl")
@dataclass(frozen=True)
class GrpoKl(LearningRule):
    """Group-relative advantages, minus ``kl`` times how far each token is from the host."""

    kl: float = 0.05  # weight of the KL term, >= 0
    needs_host_log_probabilities: ClassVar[bool] = True

    def targets(self, experience: Experience) -> Targets:
        """One target for every rollout, with a weight for each of its tokens."""
        targets = []
        for outcome in experience.outcomes:
            for _, rollouts in outcome.by_item():
                rewards = np.array([rollout.reward for rollout in rollouts])
                advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
                for rollout, advantage in zip(rollouts, advantages, strict=True):
                    drift = rollout.log_probabilities - rollout.host_log_probabilities
                    weights = advantage - self.kl * drift
                    targets.append(WeightedTarget.of(rollout, tuple(weights.tolist())))
        return targets, experience.notes
