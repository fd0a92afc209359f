"""The learning rules: imitation and policy gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from symbiont_ecology.base.registry import PositiveShare, Share
from symbiont_ecology.base.types import cell_name
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import LearningRule, learning_rules
from symbiont_ecology.ecology.learning.experience import Experience, Targets, WeightedTarget

RATE_WEIGHT = 0.2
"""Weight of the newest generation in the moving success rate of a cell."""
BASELINE_WEIGHT = 0.3
"""Weight of the newest generation in the baseline of a policy gradient."""
MIN_ADVANTAGE = 0.02
"""A smaller advantage is not worth a lesson."""
MIN_WEIGHT = 1e-6
"""A smaller weight is no lesson: what is left of advantages that cancel."""
REPLAY_WEIGHT = 0.5
"""Of a remembered answer in GRPO: about what the advantages of right answers are."""


@learning_rules.register("none")
@dataclass(frozen=True)
class NoLearning(LearningRule):
    """Weights stay as they were at birth."""

    def targets(self, experience: Experience) -> Targets:
        return (), experience.notes


@learning_rules.register("supervised")
@dataclass(frozen=True)
class Supervised(LearningRule):
    """Imitates the reference answer of every item (LoRA fine-tuning, Hu et al. 2021,
    arXiv:2106.09685). It sees gold answers, and tables must say so.

    Practice adds nothing to it, so a strategy for it asks for no rollouts (``samples: 0``).
    """

    replay: NonNegativeFloat = 0.0  # remembered answers for each question of a generation
    sees_gold: ClassVar[bool] = True

    def targets(self, experience: Experience) -> Targets:
        items = [item for outcome in experience.outcomes for item in outcome.assignment.items]
        ids = experience.reference_ids
        targets = [WeightedTarget(item, ids[item.answer], 1.0) for item in items]
        return [*targets, *experience.replayed()], experience.notes


@learning_rules.register("expert_iteration")
@dataclass(frozen=True)
class ExpertIteration(LearningRule):
    """Imitates one's own verified answers (Anthony et al. 2017, arXiv:1705.08439): every rollout
    with a reward of at least ``accept`` is a target; equal answers count once.

    An answer that is always right teaches little, and costs a lesson. With ``skip`` above 0, a cell
    with success rate p teaches only the share 1 − skip · p of its accepted answers. ``replay``
    above 0 adds remembered right answers, so nothing is forgotten.

    What is accepted is imitated, wherever it came from. So practice may be cooler than the policy
    is: a general model says sensible things at 0.7 and nonsense at 1.
    """

    accept: PositiveShare = 1.0  # reward from which a rollout counts as an expert's, in (0, 1]
    skip: Share = 0.8  # part of the lessons that is left out where everything is right
    replay: NonNegativeFloat = 0.0  # remembered answers for each rollout of a generation
    temperature: PositiveFloat = 1.0  # of sampling in practice, > 0
    needs_verdicts: ClassVar[bool] = True
    needs_log_probabilities: ClassVar[bool] = False

    def targets(self, experience: Experience) -> Targets:
        notes, targets = dict(experience.notes), []
        for outcome in experience.outcomes:
            cell = cell_name(outcome.assignment.cell)
            rate, due = notes.get(f"right:{cell}", 0.0), notes.get(f"due:{cell}", 0.0)
            for item, rollouts in outcome.by_item():
                accepted = {
                    answer.answer_ids for answer in rollouts if answer.reward >= self.accept
                }
                for token_ids in sorted(accepted):
                    due += 1 - self.skip * rate
                    if due >= 1:
                        due -= 1
                        targets.append(WeightedTarget(item, token_ids, 1.0))
            if self.skip:
                notes[f"due:{cell}"] = due
        if self.skip:
            for cell, rewards in experience.rewards_by_cell().items():
                right = [reward >= self.accept for reward in rewards]
                rate = notes.get(f"right:{cell}", 0.0)
                notes[f"right:{cell}"] = rate + RATE_WEIGHT * (sum(right) / len(right) - rate)
        return [*targets, *experience.replayed()], notes


@learning_rules.register("policy_gradient")
@dataclass(frozen=True)
class PolicyGradient(LearningRule):
    """Advantage = reward − baseline (REINFORCE, Williams 1992); the baseline is the organelle's
    moving average in the cell.

    With several samples per item, the other samples of the item join the baseline (leave one out,
    Kool et al. 2019) with the weight ``group``. Smaller advantages than ``MIN_ADVANTAGE`` teach
    nothing and are not paid for.
    """

    group: Share = 0.5  # part of the other samples of an item in its baseline, in [0, 1]

    def targets(self, experience: Experience) -> Targets:
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
                    if abs(advantage) >= MIN_ADVANTAGE:
                        targets.append(WeightedTarget.of(rollout, advantage))
        for key, average in averages.items():
            notes[key] = average + BASELINE_WEIGHT * (means[key] - average)
        return targets, notes


@learning_rules.register("grpo")
@dataclass(frozen=True)
class Grpo(LearningRule):
    """Advantage = reward − mean reward of the question's samples (Shao et al. 2024,
    arXiv:2402.03300), without a critic or a running baseline.

    As in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783) it is not divided by the group's spread or by
    the answer's length, since that favours questions that are nearly always, or hardly ever, right.
    A group without spread teaches nothing and costs no lesson
    (DAPO, Yu et al. 2025, arXiv:2503.14476). Equal answers to a question are one lesson with the
    sum of their weights: the same gradient, and most of the cost saved where answers are short.

    One step is made of each generation's answers, so there is no ratio to clip.

    With ``replay`` above 0, remembered answers that were right are imitated, too, so that what is
    not asked any more is not forgotten.
    """

    least_samples: ClassVar[int] = 2
    replay: NonNegativeFloat = 0.0  # remembered answers for each rollout of a generation

    def targets(self, experience: Experience) -> Targets:
        targets = [
            target
            for outcome in experience.outcomes
            for _, rollouts in outcome.by_item()
            for target in self._of_group(rollouts)
        ]
        return [*targets, *experience.replayed(REPLAY_WEIGHT)], experience.notes

    @staticmethod
    def _of_group(rollouts: Sequence[Rollout]) -> Iterator[WeightedTarget]:
        rewards = np.array([rollout.reward for rollout in rollouts])
        if not np.ptp(rewards):
            return
        advantages = rewards - rewards.mean()
        places_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, rollout in enumerate(rollouts):
            places_of[rollout.token_ids].append(place)
        for places in places_of.values():
            first, weight = rollouts[places[0]], float(advantages[places].sum())
            if abs(weight) >= MIN_WEIGHT:
                yield WeightedTarget.of(first, weight)
