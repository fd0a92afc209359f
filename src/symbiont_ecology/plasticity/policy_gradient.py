"""Policy gradient with a baseline (REINFORCE, Williams 1992) from verdicts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat

from symbiont_ecology.ecology import cell_name
from symbiont_ecology.plasticity import Lived, Teaching, plasticities
from symbiont_ecology.registry import PositiveShare, Share


@plasticities.register("policy_gradient")
@dataclass(frozen=True)
class PolicyGradient:
    """Advantage = reward − baseline, the baseline being the organelle's own moving average in the cell.

    With several samples per item the other samples of the item join the baseline (leave one out, Kool et
    al. 2019), by ``group`` parts. Rollouts with an advantage below ``least`` teach nothing and are not paid
    for.
    """

    beta: PositiveShare = 0.3  # weight of the newest generation in the moving average, in (0, 1]
    group: Share = 0.5  # part of the other samples of an item in its baseline, in [0, 1]
    least: PositiveFloat = 0.02  # smallest advantage worth a lesson, > 0
    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Lived) -> tuple[Sequence[Teaching], Mapping[str, float]]:
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
                    if abs(advantage) >= self.least:
                        teachings.append(Teaching(item, outcome.completions[place], advantage))
            notes[key] = average + self.beta * (mean - average)
        return teachings, notes
