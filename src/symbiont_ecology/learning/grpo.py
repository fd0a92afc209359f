"""GRPO: advantages among the samples of one question, without a critic or a running baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat

from symbiont_ecology.ecology import Rollout
from symbiont_ecology.learning import LearningRule, learning_rules
from symbiont_ecology.learning.experience import Experience, Targets, WeightedTarget
from symbiont_ecology.registry import Share

LEAST_LESSON = 1e-6
"""A smaller weight is no lesson: what is left of advantages that cancel."""
REPLAY_WEIGHT = 0.5
"""Of a remembered answer: about what the advantages of right answers are."""


@learning_rules.register("grpo")
@dataclass(frozen=True)
class Grpo(LearningRule):
    """Advantage = reward − mean reward of the question's samples (Shao et al. 2024,
    arXiv:2402.03300).

    As in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783) it is not divided by the group's spread or by
    the answer's length, since that favours questions that are nearly always, or hardly ever, right;
    ``is_scaled`` divides by the spread. A group without spread teaches nothing and costs no lesson
    (DAPO, Yu et al. 2025, arXiv:2503.14476). Equal answers to a question are one lesson with the
    sum of their weights: the same gradient, and most of the cost saved where answers are short.

    One step is made of each generation's answers, so there is no ratio to clip.

    With ``replay`` above 0, remembered answers that were right are imitated, too, so that what is
    not asked any more is not forgotten. With ``kl`` above 0 each token's weight falls by so much
    times log p(token) − log p_host(token), which keeps an adapter near the bare host.
    """

    least_samples: ClassVar[int] = 2
    blame: Share = 1.0  # weight of answers below their group's mean, by that of those above it
    is_scaled: bool = False  # whether advantages are in units of their group's spread
    kl: NonNegativeFloat = 0.0  # weight of the distance to the bare host
    replay: NonNegativeFloat = 0.0  # remembered answers for each rollout of a generation

    @property
    def needs_host_log_probabilities(self) -> bool:  # type: ignore[override]
        """Only for a distance to the host."""
        return self.kl > 0

    def targets(self, experience: Experience) -> Targets:
        """One target per different answer of every group with a spread."""
        targets = [
            target
            for outcome in experience.outcomes
            for _, rollouts in outcome.by_item()
            for target in self._of_group(rollouts)
        ]
        targets += [
            WeightedTarget(answer.item, answer.token_ids, REPLAY_WEIGHT)
            for answer in experience.remembered
        ]
        return targets, experience.notes

    def _of_group(self, rollouts: Sequence[Rollout]) -> Iterator[WeightedTarget]:
        rewards = np.array([rollout.reward for rollout in rollouts])
        if not np.ptp(rewards):
            return
        advantages = rewards - rewards.mean()
        if self.is_scaled:
            advantages /= rewards.std()
        advantages = np.where(advantages < 0, self.blame * advantages, advantages)
        places_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, rollout in enumerate(rollouts):
            places_of[rollout.token_ids].append(place)
        for places in places_of.values():
            first, weight = rollouts[places[0]], float(advantages[places].sum())
            if self.kl and first.host_log_probabilities is not None:
                drift = first.log_probabilities - first.host_log_probabilities
                weights = weight - self.kl * len(places) * drift
                yield WeightedTarget.of(first, tuple(weights.tolist()))
            elif abs(weight) >= LEAST_LESSON:
                yield WeightedTarget.of(first, weight)
