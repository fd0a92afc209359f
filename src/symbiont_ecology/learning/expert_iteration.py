"""Expert iteration: imitate one's own verified answers (Anthony et al. 2017, arXiv:1705.08439)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.ecology import cell_name
from symbiont_ecology.learning import Experience, WeightedTarget, learning_rules
from symbiont_ecology.registry import PositiveShare, Share

RATE_WEIGHT = 0.2
"""Weight of the newest generation in what was right lately."""


@learning_rules.register("expert_iteration")
@dataclass(frozen=True)
class ExpertIteration:
    """Every rollout with a reward of at least ``accept`` becomes a supervised target, equal ones
    once.

    What is always right teaches little and costs a lesson: with ``skip`` above 0, a cell in which
    the share p of rollouts was right lately teaches only the share 1 − skip · p of its accepted
    answers.
    """

    accept: PositiveShare = 1.0  # reward from which a rollout counts as an expert's, in (0, 1]
    skip: Share = 0.8  # part of the lessons that is left out where everything is right
    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """One lesson per different accepted answer, or per so many of them."""
        notes, teachings = dict(lived.notes), []
        for outcome, rewards in zip(lived.outcomes, lived.rewards, strict=True):
            cell = cell_name(outcome.trial.cell)
            right = [reward >= self.accept for reward in rewards]
            rate, due = notes.get(f"right:{cell}", 0.0), notes.get(f"due:{cell}", 0.0)
            for item, places in outcome.groups():
                for completion in sorted(
                    {outcome.completions[place] for place in places if right[place]}
                ):
                    due += 1 - self.skip * rate
                    if due >= 1:
                        due -= 1
                        teachings.append(WeightedTarget(item, completion, 1.0))
            if self.skip:
                notes[f"right:{cell}"] = rate + RATE_WEIGHT * (sum(right) / len(right) - rate)
                notes[f"due:{cell}"] = due
        return teachings, notes
