"""Policy gradients from verdicts alone: by a backward pass, or by traces of forward passes."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveFloat

from symbiont_ecology.learning import LearningRule, learning_rules
from symbiont_ecology.learning.experience import Experience, Targets, WeightedTarget
from symbiont_ecology.registry import Share
from symbiont_ecology.types import cell_name

BASELINE_WEIGHT, LEAST_ADVANTAGE = 0.3, 0.02
"""Weight of the newest generation in the baseline; smallest advantage that is worth a lesson."""


@learning_rules.register("policy_gradient")
@dataclass(frozen=True)
class PolicyGradient(LearningRule):
    """Advantage = reward − baseline (REINFORCE, Williams 1992); the baseline is the organelle's
    moving average in the cell.

    With several samples per item, the other samples of the item join the baseline (leave one out,
    Kool et al. 2019) with the weight ``group``. Smaller advantages than ``LEAST_ADVANTAGE`` teach
    nothing and are not paid for.
    """

    group: Share = 0.5  # part of the other samples of an item in its baseline, in [0, 1]

    def targets(self, experience: Experience) -> Targets:
        """One target per rollout that came out better or worse than expected."""
        notes, targets = dict(experience.notes), []
        means = {
            f"baseline:{cell}": sum(rewards) / len(rewards)
            for cell, rewards in experience.rewards_by_cell().items()
        }
        averages = {key: notes.get(key, mean) for key, mean in means.items()}
        for outcome in experience.outcomes:
            average = averages[f"baseline:{cell_name(outcome.assignment.cell)}"]
            for _, rollouts in outcome.by_item():
                total = sum(rollout.reward for rollout in rollouts)
                for rollout in rollouts:
                    baseline = average
                    if len(rollouts) > 1:
                        others = (total - rollout.reward) / (len(rollouts) - 1)
                        baseline = self.group * others + (1 - self.group) * average
                    advantage = rollout.reward - baseline
                    if abs(advantage) >= LEAST_ADVANTAGE:
                        targets.append(WeightedTarget.of(rollout, advantage))
        for key, average in averages.items():
            notes[key] = average + BASELINE_WEIGHT * (means[key] - average)
        return targets, notes


@learning_rules.register("hebbian")
@dataclass(frozen=True)
class Hebbian(PolicyGradient):
    """Three factors: what a synapse read, how its output was perturbed, and the reward after it.

    The advantages are those of ``policy_gradient``. Advantage times the trace Σ noise ⊗ input of an
    answer (``weights.traces``) is in the mean the policy gradient, from forward passes alone: node
    perturbation (Werfel, Xie & Seung 2005; Fiete & Seung 2006). A moves towards rewarded noise.

    B stays as it is. A founder's B is 0, so its noise has no effect: its first generation only sets
    baselines, and then it gets a random B, and A = 0. Fewer modules (``host.targets``) mean less
    variance.
    """

    group: Share = 1.0  # part of the other samples of an item in its baseline, in [0, 1]
    perturbation: PositiveFloat = 1.25  # standard deviation of the noise on A x, > 0
