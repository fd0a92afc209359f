"""No learning within a life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.learning import Experience, WeightedTarget, learning_rules


@learning_rules.register("none")
@dataclass(frozen=True)
class NoLearning:
    """Weights stay as they were born."""

    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Experience) -> tuple[Sequence[WeightedTarget], Mapping[str, float]]:
        """Nothing to learn."""
        return (), lived.notes
