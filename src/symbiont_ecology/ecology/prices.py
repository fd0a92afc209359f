"""Costs and earnings: the knobs of the economy and the arithmetic on them, in
milli-ATP (mATP).

Scarce skills pay: the price of a full reward in a cell falls as the population's success there
rises, ``clip(base + slope · (½ − success), lowest, highest)``, where success is an exponential
moving average. Compute is charged at an exchange rate that is fixed at the start of a run: one mean
rollout of the bare host on the task mix costs ``rollout`` mATP. So the same prices make the same
economy on any host.

Amounts are whole mATP, rounded down; what rounding leaves stays with the world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

MAX_PRICE = 10**15
"""In mATP: larger ones are not exact as floating point numbers."""
TARGET, SUCCESS_WEIGHT = 0.5, 0.2
"""Success at which a cell pays its base price; weight of the newest generation in the success
average."""


Price: TypeAlias = Annotated[int, Field(ge=-MAX_PRICE, le=MAX_PRICE)]
Fee: TypeAlias = Annotated[int, Field(ge=0, le=MAX_PRICE)]


@dataclass(frozen=True)
class Prices:
    """The economy of a run. Energy in mATP (1000 mATP = 1 ATP)."""

    rollout: Annotated[Fee, Field(gt=0)] = 250  # one mean rollout of the bare host: exchange rate
    ticket: Fee = 100  # to take part in one generation
    rent: Fee = 60_000  # per generation, for an adapter as large as the host
    base: Price = 1500  # a full reward where half of the answers are right
    slope: Price = 2000  # added to the price per unit of success below that
    lowest: Fee = 1200  # price where everyone succeeds
    highest: Fee = 2400  # price where nobody does
    cap: Fee = 1_200_000  # balance above which revenue stays with the world
    dowry: Fee = 150_000  # a newborn's first energy, paid by its parents (a founder's by the world)
    grace: Fee = 2  # generations that an organelle may stay below zero before it is retired

    def __post_init__(self) -> None:
        if self.lowest > self.highest:
            raise ValueError(
                f"lowest: expected at most highest ({self.highest}), got {self.lowest}"
            )

    def update_success(self, success: float, verdicts: Sequence[float]) -> float:
        """Return the success average of a cell after one generation's verdicts there; unchanged
        without any."""
        if not verdicts:
            return success
        return success + SUCCESS_WEIGHT * (math.fsum(verdicts) / len(verdicts) - success)

    def price(self, success: float) -> float:
        """Return what one full reward pays in a cell with that success average, in mATP."""
        return min(max(self.base + self.slope * (TARGET - success), self.lowest), self.highest)

    def revenue(self, price: float, verdicts: Sequence[float]) -> int:
        """Return what verdicts in [0, 1] earn together at that price."""
        return math.floor(price * math.fsum(verdicts))

    def cost(self, flops: int, mean_rollout_flops: int) -> int:
        """Return what so many useful FLOPs cost where the bare host's mean rollout takes
        ``mean_rollout_flops``."""
        return flops * self.rollout // mean_rollout_flops

    def rent_for(self, parameters: int, host_parameters: int) -> int:
        """Return the rent of one generation for so many LoRA parameters on a host of so many linear
        weights."""
        return parameters * self.rent // host_parameters
