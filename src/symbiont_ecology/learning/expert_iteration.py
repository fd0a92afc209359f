"""Expert iteration: imitate one's own verified answers (Anthony et al. 2017, arXiv:1705.08439)."""

from __future__ import annotations

from dataclasses import dataclass

from symbiont_ecology.ecology import cell_name
from symbiont_ecology.learning import LearningRule, learning_rules
from symbiont_ecology.learning.experience import Experience, Targets, WeightedTarget
from symbiont_ecology.registry import PositiveShare, Share

RATE_WEIGHT = 0.2
"""Weight of the newest generation in the moving success rate of a cell."""


@learning_rules.register("expert_iteration")
@dataclass(frozen=True)
class ExpertIteration(LearningRule):
    """Every rollout with a reward of at least ``accept`` is a target; equal answers count once.

    An answer that is always right teaches little, and costs a lesson. With ``skip`` above 0, a cell
    with success rate p teaches only the share 1 − skip · p of its accepted answers.
    """

    accept: PositiveShare = 1.0  # reward from which a rollout counts as an expert's, in (0, 1]
    skip: Share = 0.8  # part of the lessons that is left out where everything is right

    def targets(self, experience: Experience) -> Targets:
        """One target per different accepted answer, or per so many of them."""
        notes, targets = dict(experience.notes), []
        for outcome in experience.outcomes:
            cell = cell_name(outcome.assignment.cell)
            rate, due = notes.get(f"right:{cell}", 0.0), notes.get(f"due:{cell}", 0.0)
            for item, rollouts in outcome.by_item():
                accepted = {one.token_ids for one in rollouts if one.reward >= self.accept}
                for token_ids in sorted(accepted):
                    due += 1 - self.skip * rate
                    if due >= 1:
                        due -= 1
                        targets.append(WeightedTarget(item, token_ids, 1.0))
            if self.skip:
                right = [rollout.reward >= self.accept for rollout in outcome.rollouts]
                notes[f"right:{cell}"] = rate + RATE_WEIGHT * (sum(right) / len(right) - rate)
                notes[f"due:{cell}"] = due
        return targets, notes
