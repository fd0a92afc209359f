"""Imitation: of reference answers, or of one's own verified answers; and no learning at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from symbiont_ecology.learning import LearningRule, learning_rules
from symbiont_ecology.learning.experience import Experience, Targets, WeightedTarget
from symbiont_ecology.registry import PositiveShare, Share
from symbiont_ecology.types import cell_name

RATE_WEIGHT = 0.2
"""Weight of the newest generation in the moving success rate of a cell."""


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
        """The reference answers of all items, and those that are replayed."""
        items = [item for outcome in experience.outcomes for item in outcome.assignment.items]
        ids, remembered = experience.reference_ids, experience.remembered
        targets = [WeightedTarget(item, ids[item.answer], 1.0) for item in items]
        targets += [WeightedTarget(answer.item, answer.token_ids, 1.0) for answer in remembered]
        return targets, experience.notes


@learning_rules.register("none")
@dataclass(frozen=True)
class NoLearning(LearningRule):
    """Weights stay as they were at birth."""

    def targets(self, experience: Experience) -> Targets:
        """Nothing to learn."""
        return (), experience.notes


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

    def targets(self, experience: Experience) -> Targets:
        """One target per different accepted answer, or per so many of them."""
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
        for answer in experience.remembered:
            targets.append(WeightedTarget(answer.item, answer.token_ids, 1.0))
        return targets, notes
