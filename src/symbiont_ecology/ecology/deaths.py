"""Deaths: bankruptcy, catastrophes, numbers that are not finite, and what a strategy retires.

Every death goes through ``retire``. Its ``Retired`` event in ``events.jsonl`` names the cause, and
``symbiont phylogeny RUN`` shows it in a column.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from symbiont_ecology.base.events import Event, Quarantined, Retired
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.population import ApplyContext, Decision
from symbiont_ecology.ecology.prices import Climate, Prices
from symbiont_ecology.ecology.state import EcologyState

MOST_DORMANT = 32
"""Organelles that are kept; the oldest go first."""


@dataclass(frozen=True)
class Retire(Decision):
    """An organelle leaves; what it owns or owes goes to the world."""

    organelle_id: OrganelleId
    cause: str

    def apply(self, context: ApplyContext) -> list[Event]:
        """The organelle leaves."""
        return [retire(self.organelle_id, self.cause, context.state)]


def retire_the_bankrupt(state: EcologyState, prices: Prices) -> list[Event]:
    """Everyone who has been below zero for longer than the grace period leaves."""
    organelles = state.population.values()
    bankrupt = [organelle.id for organelle in organelles if organelle.overdrawn > prices.grace]
    return [retire(organelle_id, "bankrupt", state) for organelle_id in bankrupt]


def retire_by_catastrophe(state: EcologyState, climate: Climate, draw: Draw) -> list[Event]:
    """A catastrophe at the beginning of this generation, if there is one, takes anyone by draw."""
    if state.generation not in climate.catastrophes:
        return []
    living = list(state.population)
    order = draw("catastrophe").permutation(len(living))
    toll = Fraction(str(climate.toll))  # as it is written: .14 of 50 are 7
    victims = [living[index] for index in order[: math.ceil(toll * len(living))]]
    return [retire(organelle_id, "catastrophe", state) for organelle_id in victims]


def quarantine(state: EcologyState, organelle_id: OrganelleId, reason: str) -> list[Event]:
    """Takes an organelle out whose numbers are no longer finite; the others go on."""
    retired = retire(organelle_id, "quarantined", state)
    return [Quarantined(state.generation, organelle_id, reason), retired]


def retire(organelle_id: OrganelleId, cause: str, state: EcologyState) -> Retired:
    """An organelle leaves; its account is closed. A bankrupt with memories becomes dormant."""
    organelle = state.population.pop(organelle_id)
    if cause == "bankrupt" and organelle.memories:
        state.dormant[organelle_id] = organelle
        for oldest in list(state.dormant)[:-MOST_DORMANT]:
            del state.dormant[oldest]
    state.posteriors.pop(organelle_id, None)
    balance = state.ledger.close(organelle_id)
    if not state.population:  # whoever starts anew has not fallen from what was usual before
        state.drift_detectors.clear()
    age = state.generation - organelle.born
    return Retired(state.generation, organelle_id, cause, age, balance)
