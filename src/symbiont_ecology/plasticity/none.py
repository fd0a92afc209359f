"""No learning within a life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.plasticity import Lived, Teaching, plasticities


@plasticities.register("none")
@dataclass(frozen=True)
class NoPlasticity:
    """Weights stay as they were born."""

    sees_gold: ClassVar[bool] = False

    def learn(self, lived: Lived) -> tuple[Sequence[Teaching], Mapping[str, float]]:
        """Nothing to learn."""
        return (), lived.notes
