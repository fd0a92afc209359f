"""Learning from reference answers, and not at all: the two ends beside learning from verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.learning import LearningRule, learning_rules
from symbiont_ecology.learning.experience import Experience, Targets, WeightedTarget


@learning_rules.register("supervised")
@dataclass(frozen=True)
class Supervised(LearningRule):
    """Imitates the reference answer of every item (LoRA fine-tuning, Hu et al. 2021,
    arXiv:2106.09685). It sees gold answers, and tables must say so.

    Practice adds nothing to it, so a strategy for it asks for no rollouts (``samples: 0``).
    """

    sees_gold: ClassVar[bool] = True

    def targets(self, experience: Experience) -> Targets:
        """The reference answers of all items."""
        items = [item for outcome in experience.outcomes for item in outcome.assignment.items]
        ids = experience.reference_ids
        return [WeightedTarget(item, ids[item.answer], 1.0) for item in items], experience.notes


@learning_rules.register("none")
@dataclass(frozen=True)
class NoLearning(LearningRule):
    """Weights stay as they were at birth."""

    def targets(self, experience: Experience) -> Targets:
        """Nothing to learn."""
        return (), experience.notes
