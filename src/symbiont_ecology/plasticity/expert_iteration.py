"""Expert iteration: imitate one's own verified answers (Anthony et al. 2017, arXiv:1705.08439)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.plasticity import Lived, Teaching, plasticities
from symbiont_ecology.registry import PositiveShare


@plasticities.register("expert_iteration")
@dataclass(frozen=True)
class ExpertIteration:
    """Every rollout with a reward of at least ``accept`` becomes a supervised target, once per item."""

    accept: PositiveShare = 1.0  # reward from which a rollout counts as an expert's, in (0, 1]
    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Lived) -> tuple[Sequence[Teaching], Mapping[str, float]]:
        """One lesson per different accepted answer."""
        teachings = []
        for outcome, rewards in zip(lived.outcomes, lived.rewards, strict=True):
            for item, places in outcome.groups():
                accepted = {outcome.completions[place] for place in places if rewards[place] >= self.accept}
                teachings += [Teaching(item, completion, 1.0) for completion in sorted(accepted)]
        return teachings, lived.notes
