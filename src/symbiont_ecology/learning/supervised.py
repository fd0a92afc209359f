"""Supervised learning: imitate the gold answers (LoRA fine-tuning, Hu et al. 2021,
arXiv:2106.09685)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.learning import Experience, WeightedTarget, learning_rules


@learning_rules.register("supervised")
@dataclass(frozen=True)
class Supervised:
    """One lesson per item: its gold answer, end of answer included. It sees gold: tables must say
    so.

    Practice adds nothing to it, so a strategy that is meant for it asks for no rollouts
    (``samples: 0``).
    """

    sees_gold: ClassVar[bool] = True

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """The gold answers of everything that was met."""
        teachings = [
            WeightedTarget(item, gold, 1.0)
            for outcome, golds in zip(lived.outcomes, lived.golds, strict=True)
            for item, gold in zip(outcome.trial.items, golds, strict=True)
        ]
        return teachings, lived.notes
