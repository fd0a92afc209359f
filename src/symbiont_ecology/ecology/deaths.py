"""Deaths: bankruptcy, catastrophes, numbers that are not finite."""

from __future__ import annotations

import math

from symbiont_ecology.config import Climate
from symbiont_ecology.ecology.decisions import Retire
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.economics import Prices
from symbiont_ecology.events import Event, Quarantined, Retired
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import OrganelleId


def retire_the_bankrupt(state: EcologyState, prices: Prices) -> list[Event]:
    """Everyone who has been below zero for longer than the grace period leaves."""
    bankrupt = [
        organelle.id
        for organelle in state.population.values()
        if organelle.overdrawn > prices.grace
    ]
    return [retire(Retire(organelle_id, "bankrupt"), state) for organelle_id in bankrupt]


def strike(state: EcologyState, climate: Climate, draw: Draw) -> list[Event]:
    """A catastrophe at the beginning of this generation, if there is one, takes anyone by draw."""
    if state.generation not in climate.catastrophes:
        return []
    living = list(state.population)
    order = draw("catastrophe").permutation(len(living))
    victims = [living[index] for index in order[: math.ceil(climate.toll * len(living))]]
    return [retire(Retire(organelle_id, "catastrophe"), state) for organelle_id in victims]


def quarantine(state: EcologyState, organelle_id: OrganelleId, reason: str) -> list[Event]:
    """Takes an organelle out whose numbers are no longer finite; the others go on."""
    return [
        Quarantined(state.generation, organelle_id, reason),
        retire(Retire(organelle_id, "quarantined"), state),
    ]


def retire(decision: Retire, state: EcologyState) -> Retired:
    """An organelle leaves; its account is closed."""
    organelle = state.population.pop(decision.organelle_id)
    state.posteriors.pop(decision.organelle_id, None)
    balance = state.ledger.close(decision.organelle_id)
    if not state.population:  # whoever starts anew has not fallen from what was usual before
        state.drift_detectors.clear()
    age = state.generation - organelle.born
    return Retired(state.generation, organelle.id, decision.cause, age, balance)
