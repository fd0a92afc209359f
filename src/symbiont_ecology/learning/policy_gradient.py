"""Policy gradient with a baseline (REINFORCE, Williams 1992) from verdicts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.ecology import cell_name
from symbiont_ecology.learning import Experience, WeightedTarget, learning_rules
from symbiont_ecology.registry import Share

BASELINE_WEIGHT, LEAST_ADVANTAGE = 0.3, 0.02
"""Weight of the newest generation in the moving average; smallest advantage that is worth a
lesson."""


@learning_rules.register("policy_gradient")
@dataclass(frozen=True)
class PolicyGradient:
    """Advantage = reward − baseline, the baseline being the organelle's own moving average in the
    cell.

    With several samples per item the other samples of the item join the baseline (leave one out,
    Kool et al. 2019), by ``group`` parts. Rollouts with an advantage below ``LEAST``, up or down,
    teach nothing and are not paid for.
    """

    group: Share = 0.5  # part of the other samples of an item in its baseline, in [0, 1]
    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """One lesson per rollout that surprised."""
        notes, teachings = dict(lived.notes), []
        for outcome, rewards in zip(lived.outcomes, lived.rewards, strict=True):
            key = f"baseline:{cell_name(outcome.trial.cell)}"
            mean = sum(rewards) / len(rewards)
            average = notes.get(key, mean)
            for item, places in outcome.groups():
                total = sum(rewards[place] for place in places)
                for place in places:
                    baseline = average
                    if len(places) > 1:
                        others = (total - rewards[place]) / (len(places) - 1)
                        baseline = self.group * others + (1 - self.group) * average
                    advantage = rewards[place] - baseline
                    if abs(advantage) >= LEAST_ADVANTAGE:
                        completion, trace = outcome.completions[place], outcome.trace(place)
                        teachings.append(WeightedTarget(item, completion, advantage, trace))
            notes[key] = average + BASELINE_WEIGHT * (mean - average)
        return teachings, notes
