"""When the world changes: old claims lapse, and a pioneer comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat

from symbiont_ecology.base.types import cell_family
from symbiont_ecology.ecology import Decision, DriftDetector, Found, Upheaval, drift_score
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Mechanism, Room, mechanisms

FALL, SURE_SCORE = 0.3, 3.0
"""How far success falls in a family that counts as fallen, and drift score of its cells that rules
out chance."""
UNREST = 24
"""Generations after a pioneer came in which more families may be found to have fallen."""


@mechanisms.register("upheaval")
@dataclass(frozen=True)
class Upheavals(Mechanism):
    """Where success falls in many families at once, the fallen are opened to newcomers.

    Nobody is told that the world changed. Whoever is sure of an answer that is no longer right
    earns nothing to learn from: it goes on being wrong. So a pioneer comes for the fallen families,
    a fresh founder. All others keep their owners: that is what a reset of everything cannot do.
    Whoever was right before may still live when the world changes back. Not every cell was asked
    since the world changed, so for a while more families may follow.
    """

    level: PositiveFloat = 5.0  # drift score at which the world is taken to have changed
    haste: PositiveFloat = 2.0  # the pioneer's learning rate, in units of other founders'
    fits_habitats: ClassVar[bool] = False  # it looks at families

    def tell(self, context: StrategyContext, room: Room) -> list[Decision]:
        """Nothing, or the upheaval, and a pioneer if there is room."""
        state = context.state
        is_shaken = any(
            organelle.operator == "pioneer" and state.generation - organelle.born < UNREST
            for organelle in state.population.values()
        )
        if not is_shaken and drift_score(state.drift_detectors.values()) < self.level:
            return []
        fallen = _fallen(state.drift_detectors)
        if not fallen:
            return []
        traits = {**room.traits, "learning_rate": self.haste * room.traits["learning_rate"]}
        if is_shaken or room.places < 1:
            return [Upheaval(fallen)]
        return [Upheaval(fallen), Found(traits, context.rank, operator="pioneer")]


def _fallen(drift_detectors: Mapping[str, DriftDetector]) -> tuple[str, ...]:
    """The cells of the families in which success fell, on the mean of their cells and beyond
    chance."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in drift_detectors:
        families[cell_family(name)].append(name)
    return tuple(
        name
        for names in families.values()
        if sum(drift_detectors[name].fall for name in names) >= FALL * len(names)
        and drift_score(drift_detectors[name] for name in names) >= SURE_SCORE
        for name in names
    )
