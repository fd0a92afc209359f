"""Births and deaths: the ways the population changes, with the energy that moves on each occasion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from symbiont_ecology.config import Climate
from symbiont_ecology.ecology.belief import Belief
from symbiont_ecology.ecology.decisions import (
    Birth,
    Decision,
    Found,
    Inheritance,
    Note,
    Probation,
    Propose,
    Recall,
    Resize,
    Retire,
    Upheaval,
)
from symbiont_ecology.ecology.nursery import Candidate
from symbiont_ecology.ecology.organelle import RULE, Genome, Organelle
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.economics import Prices
from symbiont_ecology.events import (
    Born,
    Event,
    Gated,
    Proposed,
    Quarantined,
    Resized,
    Restored,
    Retired,
    Upheaved,
)
from symbiont_ecology.operators import Parent
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef, OrganelleId
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, Memory
from symbiont_ecology.weights.blobs import BlobStore
from symbiont_ecology.weights.deltas import grown, grown_memory, inner, shares, truncated

HEARSAY = 0.5
"""How much of what is believed of a parent is believed of its child."""

FALLEN = Belief(0.0, 4.0)
"""What is believed of everyone living where the world changed: they were just seen to fail."""


def endowed(decisions: Sequence[Decision], generator: np.random.Generator) -> Iterator[Decision]:
    """Newcomers with a rule to learn by, as far as they bring none: evenly spread, from a random one on."""
    count, first = sum(isinstance(one, Found) for one in decisions), generator.random()
    shares = iter((first + place / count) % 1 for place in range(count))
    for one in decisions:
        yield replace(one, traits={RULE: next(shares), **one.traits}) if isinstance(one, Found) else one


def execute(
    decision: Decision,
    state: EcologyState,
    store: BlobStore,
    layout: AdapterLayout,
    prices: Prices,
    draw: Draw,
) -> list[Event]:
    """Carries out one decision and returns the events that record it."""
    match decision:
        case Found():
            return [_found(decision, state, store, layout, prices, draw)]
        case Birth():
            return [_birth(decision, state, store, prices, draw)]
        case Propose():
            return _propose(decision, state, store, prices, draw)
        case Note(who):
            state.population[who] = state.population[who].noted(state.beliefs.get(who, {}))
            return []
        case Recall():
            return [_recall(decision, state)]
        case Probation():
            return _look_at(decision, state, store, draw)
        case Resize():
            return _resize(decision, state, store, draw)
        case Retire():
            return [_retire(decision, state)]
        case Upheaval():
            return [_upheave(decision, state)]


def bankrupt(state: EcologyState, prices: Prices) -> list[Retire]:
    """Who has been below zero for longer than the grace period."""
    return [Retire(o.id, "bankrupt") for o in state.population.values() if o.overdrawn > prices.grace]


def struck(state: EcologyState, climate: Climate, draw: Draw) -> list[Retire]:
    """Whom a catastrophe takes at the beginning of this generation, if there is one: anyone, by draw."""
    if state.generation not in climate.catastrophes:
        return []
    living = list(state.population)
    order = draw("catastrophe").permutation(len(living))[: math.ceil(climate.toll * len(living))]
    return [Retire(living[index], "catastrophe") for index in order]


def quarantine(state: EcologyState, who: str, reason: str) -> list[Event]:
    """Takes an organelle out whose numbers are no longer finite; the rest of the population goes on."""
    return [Quarantined(state.generation, who, reason), _retire(Retire(who, "quarantined"), state)]


def _found(
    decision: Found, state: EcologyState, store: BlobStore, layout: AdapterLayout, prices: Prices, draw: Draw
) -> Born:
    who = state.new_id()
    ref = decision.weights
    if ref is None:
        # Scaling 1 keeps ΔW = B·A at every rank, so that weights mean the same whatever rank holds them.
        weights = AdapterWeights.random(layout, decision.rank, 1.0, draw("found", who), decision.b_std)
        ref = store.put_weights(weights)
    state.ledger.open(who)
    state.ledger.mint(who, prices.dowry)
    genome = Genome(ref, decision.rank, decision.traits)
    return _enter(state, who, genome, store.put_memory(Memory()), (), decision.operator)


def _birth(decision: Birth, state: EcologyState, store: BlobStore, prices: Prices, draw: Draw) -> Born:
    who = state.new_id()
    parents = [state.population[parent] for parent in decision.parents]
    weights = decision.operator(
        [_as_parent(p, store, decision.inheritance) for p in parents], draw("breed", who)
    )
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    _endow(who, decision.parents, prices.dowry // len(parents), state)
    believed = state.beliefs.get(parents[0].id, {})
    state.beliefs[who] = {cell: belief.discounted(HEARSAY) for cell, belief in believed.items()}
    memory = _inherited(decision, parents, weights.rank, store)
    return _enter(state, who, genome, memory, decision.parents, decision.name)


def _propose(
    decision: Propose, state: EcologyState, store: BlobStore, prices: Prices, draw: Draw
) -> list[Event]:
    part = prices.dowry // len(decision.cells)
    if decision.is_child and any(state.ledger.balance(parent) < part for parent in decision.cells):
        return []  # a birth in the same generation left too little
    who = state.new_id()
    parents = [_as_parent(state.population[parent], store) for parent in decision.cells]
    weights = decision.operator(parents, draw("merge", who))
    if weights.rank > decision.rank:
        weights = truncated(weights, decision.rank)
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    child = Candidate(who, genome, decision.name, decision.by, decision.is_child, decision.cells)
    state.nursery[who] = child
    if child.is_child:
        _endow(who, child.parents, part, state)
    return [Proposed(state.generation, who, decision.name, child.parents, genome.weights)]


def _recall(decision: Recall, state: EcologyState) -> Proposed:
    who, former, homes = state.new_id(), decision.former, {decision.who: decision.cells}
    genome = Genome(former.weights, former.rank, state.population[decision.who].genome.traits)
    state.nursery[who] = Candidate(who, genome, "recall", decision.by, False, homes, former=former)
    return Proposed(state.generation, who, "recall", (decision.who,), genome.weights)


def _look_at(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> list[Event]:
    child = decision.child
    if decision.verdict == "go on":
        state.nursery[child.id] = child if decision.operator is None else _anew(decision, state, store, draw)
        return []
    del state.nursery[child.id]
    shown = child.against_the_better
    gated = Gated(state.generation, child.id, decision.verdict, shown.wins, shown.ties, shown.losses)
    if decision.verdict == "reject":
        if child.is_child:
            _return_dowry(child, state)
        regressed = state.population.get(child.parents[0])
        if child.former and regressed and regressed.former == child.former:
            state.population[regressed.id] = replace(regressed, former=None)  # it was no better
        return [gated]
    if child.is_child:
        return [gated, _admit(child, state, store)]
    return [gated, _restore(child, state) if child.former else _become(decision, state, store, draw)]


def _endow(who: OrganelleId, parents: Sequence[OrganelleId], part: int, state: EcologyState) -> None:
    """A child's account, with so much from each of its parents."""
    state.ledger.open(who)
    for parent in parents:
        state.ledger.transfer(parent, who, part)


def _return_dowry(child: Candidate, state: EcologyState) -> None:
    """To the parents as it came; the part of the dead is lost."""
    part = state.ledger.balance(child.id) // len(child.parents)
    for parent in child.parents:
        if parent in state.population:
            state.ledger.transfer(child.id, parent, part)
    state.ledger.close(child.id)


def _anew(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> Candidate:
    """The child as the operator makes it of what its only parent is now."""
    assert decision.operator is not None, "expected the operator that makes another self"
    child, (who,) = decision.child, decision.child.parents
    weights = decision.operator([_as_parent(state.population[who], store)], draw("anew", child.id))
    return replace(child, genome=replace(child.genome, weights=store.put_weights(weights), rank=weights.rank))


def _become(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> Resized:
    """The parent changes as the operator says, and is at home where it was."""
    genome = _anew(decision, state, store, draw).genome
    (who,) = decision.child.parents
    before, after = (store.weights(ref) for ref in (state.genome(who).weights, genome.weights))
    kept = sum(inner(after, after).values()) / (sum(inner(before, before).values()) or 1.0)
    state.population[who] = replace(state.population[who], genome=genome, former=None)
    state.archive.follow(who, genome.weights, genome.rank, state.generation)
    return Resized(state.generation, who, genome.rank, kept, genome.weights)


def _restore(child: Candidate, state: EcologyState) -> Restored:
    """An organelle becomes what it was: weights, memory, and what was believed of it."""
    (who,) = child.parents
    former = state.population[who].former  # an upheaval may just have voided what was believed of it
    assert former is not None, "expected a former self to come back to"
    state.population[who] = replace(
        state.population[who], genome=child.genome, memory=former.memory, former=None
    )
    state.beliefs[who] = {**state.beliefs.get(who, {}), **former.beliefs}
    state.archive.follow(who, former.weights, former.rank, state.generation)
    return Restored(state.generation, who, former.weights)


def _admit(child: Candidate, state: EcologyState, store: BlobStore) -> Born:
    """The child comes to life at the home of its parents, with what was believed of them there."""
    believed = state.beliefs.setdefault(child.id, {})
    for parent, cells in child.cells.items():
        of_parent = state.beliefs.get(parent, {})
        for cell in cells:
            if cell in of_parent:
                believed[cell] = of_parent[cell]
                of_parent[cell] = of_parent[cell].discounted(HEARSAY)
        state.archive.pass_on(parent, cells, child.id, child.genome.weights, child.genome.rank)
    return _enter(state, child.id, child.genome, store.put_memory(Memory()), child.parents, child.operator)


def _resize(decision: Resize, state: EcologyState, store: BlobStore, draw: Draw) -> list[Event]:
    organelle = state.population[decision.who]
    weights, memory = store.weights(organelle.genome.weights), store.memory(organelle.memory)
    carried = shares(weights)
    weakest = carried[-1] * len(carried)
    if decision.rank > weights.rank:
        if weakest < decision.share:
            return []
        kept, resized = 1.0, grown(weights, decision.rank, draw("grow", decision.who))
        memory = grown_memory(memory, weights, decision.rank)
    else:
        if weakest > decision.share or not carried.any():  # of who never learned nothing is known
            return []
        kept, resized = float(carried[: decision.rank].sum()), truncated(weights, decision.rank)
        # Its moments belong to directions that are no more, its age is its own.
        memory = Memory(step=memory.step, notes=memory.notes)
    genome = replace(organelle.genome, weights=store.put_weights(resized), rank=decision.rank)
    state.population[decision.who] = replace(
        organelle, genome=genome, memory=store.put_memory(memory), former=None
    )
    return [Resized(state.generation, decision.who, decision.rank, kept, genome.weights)]


def _as_parent(organelle: Organelle, store: BlobStore, inheritance: Inheritance = "lamarckian") -> Parent:
    """What it hands down: what it learned, or what it was born with."""
    if inheritance == "darwinian":
        return Parent(**vars(store.weights(organelle.inborn)))
    return Parent(**vars(store.weights(organelle.genome.weights)), memory=store.memory(organelle.memory))


def _inherited(decision: Birth, parents: Sequence[Organelle], rank: int, store: BlobStore) -> BlobRef:
    """An only parent's memory, if learning is inherited and the ranks agree: moments are per parameter."""
    (first, *others) = parents
    fits = not others and rank == first.genome.rank and decision.inheritance == "lamarckian"
    return first.memory if fits else store.put_memory(Memory())


def _enter(
    state: EcologyState,
    who: OrganelleId,
    genome: Genome,
    memory: BlobRef,
    parents: tuple[OrganelleId, ...],
    operator: str,
) -> Born:
    now, inborn = state.generation, genome.weights
    state.population[who] = Organelle(who, genome, memory, parents, operator, now, inborn)
    return Born(now, who, operator, parents, inborn, genome.traits)


def _upheave(decision: Upheaval, state: EcologyState) -> Upheaved:
    state.archive.empty(decision.cells)
    void = dict.fromkeys(decision.cells, FALLEN)
    for who, organelle in state.population.items():
        state.beliefs.setdefault(who, {}).update(void)
        if (former := organelle.former) is not None:  # what it was would fail there, too
            former = replace(former, beliefs={**former.beliefs, **void})
            state.population[who] = replace(organelle, former=former)
    for name in decision.cells:
        state.watches.pop(name, None)  # what was usual there is so no more
    return Upheaved(state.generation, decision.cells)


def _retire(decision: Retire, state: EcologyState) -> Retired:
    gone = state.population.pop(decision.who)
    state.beliefs.pop(decision.who, None)
    rest = state.ledger.close(decision.who)
    if not state.population:  # what was usual was theirs: who starts anew did not fall from it
        state.watches.clear()
    return Retired(state.generation, gone.id, decision.cause, state.generation - gone.born, rest)
