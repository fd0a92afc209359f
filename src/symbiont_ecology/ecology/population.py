"""Births and deaths: the ways the population changes, with the energy that moves on each occasion."""

from __future__ import annotations

from symbiont_ecology.ecology.decisions import Birth, Decision, Found, Retire
from symbiont_ecology.ecology.organelle import Genome, Organelle
from symbiont_ecology.ecology.state import Belief, EcologyState
from symbiont_ecology.economics import Prices
from symbiont_ecology.events import Born, Event, Quarantined, Retired
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, Memory
from symbiont_ecology.weights.blobs import BlobStore

HEARSAY = 0.5
"""How much of what is believed of a parent is believed of its child."""


def execute(
    decision: Decision,
    state: EcologyState,
    store: BlobStore,
    layout: AdapterLayout,
    prices: Prices,
    draw: Draw,
) -> Event:
    """Carries out one decision and returns the event that records it."""
    match decision:
        case Found():
            return _found(decision, state, store, layout, prices, draw)
        case Birth():
            return _birth(decision, state, store, prices, draw)
        case Retire():
            return _retire(decision, state)


def bankrupt(state: EcologyState, prices: Prices) -> list[Retire]:
    """Who has been below zero for longer than the grace period."""
    return [Retire(o.id, "bankrupt") for o in state.population.values() if o.overdrawn > prices.grace]


def quarantine(state: EcologyState, who: str, reason: str) -> list[Event]:
    """Takes an organelle out whose numbers are no longer finite; the rest of the population goes on."""
    return [Quarantined(state.generation, who, reason), _retire(Retire(who, "quarantined"), state)]


def _found(
    decision: Found, state: EcologyState, store: BlobStore, layout: AdapterLayout, prices: Prices, draw: Draw
) -> Born:
    who = state.new_id()
    genome = decision.genome
    if genome is None:
        # Scaling 1 keeps ΔW = B·A at every rank, so that weights mean the same whatever rank holds them.
        weights = AdapterWeights.random(layout, decision.rank, 1.0, draw("found", who), decision.b_std)
        genome = Genome(store.put_weights(weights), decision.rank, decision.traits)
    memory = store.put_memory(Memory())
    state.ledger.open(who)
    state.ledger.mint(who, prices.dowry)
    return _enter(state, Organelle(who, genome, memory, (), decision.operator, state.generation))


def _birth(decision: Birth, state: EcologyState, store: BlobStore, prices: Prices, draw: Draw) -> Born:
    who = state.new_id()
    parents = [state.population[parent] for parent in decision.parents]
    weights = decision.operator([store.weights(p.genome.weights) for p in parents], draw("breed", who))
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    state.ledger.open(who)
    for parent in parents:
        state.ledger.transfer(parent.id, who, prices.dowry // len(parents))
    state.beliefs[who] = {
        cell: Belief(HEARSAY * belief.successes, HEARSAY * belief.failures)
        for cell, belief in state.beliefs.get(parents[0].id, {}).items()
    }
    child = Organelle(
        who, genome, _inherited(parents[0], weights, store), decision.parents, decision.name, state.generation
    )
    return _enter(state, child)


def _inherited(parent: Organelle, weights: AdapterWeights, store: BlobStore) -> BlobRef:
    """The parent's memory while the ranks agree (Lamarckian); else a blank one: moments are per parameter."""
    return parent.memory if weights.rank == parent.genome.rank else store.put_memory(Memory())


def _enter(state: EcologyState, newborn: Organelle) -> Born:
    state.population[newborn.id] = newborn
    genome = newborn.genome
    return Born(
        state.generation, newborn.id, newborn.operator, newborn.parents, genome.weights, genome.traits
    )


def _retire(decision: Retire, state: EcologyState) -> Retired:
    gone = state.population.pop(decision.who)
    state.beliefs.pop(decision.who, None)
    rest = state.ledger.close(decision.who)
    if not state.population:  # what was usual was theirs: who starts anew did not fall from it
        state.watches.clear()
    return Retired(state.generation, gone.id, decision.cause, state.generation - gone.born, rest)
