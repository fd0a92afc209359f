"""Learning from refusals, without pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from symbiont_ecology.base.types import Fading
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.ecology.learning import LearningRule, learning_rules
from symbiont_ecology.ecology.learning.experience import Experience, Targets, WeightedTarget

RIGHT, WRONG, DUE = "accepted", "refused", "due"
"""Notes: how many answers of each kind there were, and what is due of a refused one."""


@learning_rules.register("kto")
@dataclass(frozen=True)
class Kto(LearningRule):
    """Raises accepted answers, and lowers refused ones, the less the further they are from where
    they were (Kahneman-Tversky optimisation, Ethayarajh et al. 2024, arXiv:2402.01306).

    An answer whose log-probability is not known does not fade. The reference point of the paper is
    taken to be 0. Of refused answers, as many teach as of accepted ones.
    """

    beta: PositiveFloat = 0.1  # how fast a lesson fades, per nat
    refused: NonNegativeFloat = 0.3  # weight of a refused answer beside an accepted one
    needs_verdicts: ClassVar[bool] = True
    needs_log_probabilities: ClassVar[bool] = False

    def targets(self, experience: Experience) -> Targets:
        notes, targets = dict(experience.notes), list[WeightedTarget]()
        rollouts = [rollout for outcome in experience.outcomes for rollout in outcome.rollouts]
        for kind in (True, False):
            name = RIGHT if kind else WRONG
            notes[name] = notes.get(name, 0.0) + sum(one.is_right == kind for one in rollouts)
        share = min(notes[RIGHT] / max(notes[WRONG], 1.0), 1.0)
        for rollout in rollouts:
            if rollout.is_right:
                targets.append(self._target(rollout, 1.0))
                continue
            notes[DUE] = notes.get(DUE, 0.0) + share
            if notes[DUE] >= 1 and self.refused:
                notes[DUE] -= 1
                targets.append(self._target(rollout, -self.refused))
        return targets, notes

    def _target(self, rollout: Rollout, weight: float) -> WeightedTarget:
        logged = rollout.item.logged
        known = logged.log_probability if logged else float(rollout.log_probabilities.sum())
        fading = None if known is None else Fading(known, self.beta)
        return WeightedTarget(rollout.item, rollout.answer_ids, weight, rollout.extra, fading)
