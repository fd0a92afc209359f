"""Births and deaths: the ways the population changes, with the energy that moves on each
occasion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from symbiont_ecology.config import Climate
from symbiont_ecology.ecology.challengers import Challenger
from symbiont_ecology.ecology.decisions import (
    Birth,
    Decision,
    Found,
    Inheritance,
    KeepSelf,
    Probation,
    Propose,
    Recall,
    Resize,
    Retire,
    Upheaval,
)
from symbiont_ecology.ecology.organelle import RULE, Genome, Organelle
from symbiont_ecology.ecology.posterior import SuccessPosterior
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
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.weights.blobs import BlobStore
from symbiont_ecology.weights.deltas import grown, grown_optimizer_state, inner, shares, truncated

HEARSAY = 0.5
"""How much of what is believed of a parent is believed of its child."""

FALLEN = SuccessPosterior(0.0, 4.0)
"""What is believed of everyone living where the world changed: they were just seen to fail."""


def endowed(decisions: Sequence[Decision], generator: np.random.Generator) -> Iterator[Decision]:
    """Newcomers with a rule to learn by, as far as they bring none: evenly spread, from a random
    one on."""
    count, first = sum(isinstance(one, Found) for one in decisions), generator.random()
    shares = iter((first + place / count) % 1 for place in range(count))
    for one in decisions:
        yield (
            replace(one, traits={RULE: next(shares), **one.traits})
            if isinstance(one, Found)
            else one
        )


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
        case KeepSelf(organelle_id):
            state.population[organelle_id] = state.population[organelle_id].noted(
                state.posteriors.get(organelle_id, {})
            )
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
    return [
        Retire(o.id, "bankrupt") for o in state.population.values() if o.overdrawn > prices.grace
    ]


def struck(state: EcologyState, climate: Climate, draw: Draw) -> list[Retire]:
    """Whom a catastrophe takes at the beginning of this generation, if there is one: anyone, by
    draw."""
    if state.generation not in climate.catastrophes:
        return []
    living = list(state.population)
    order = draw("catastrophe").permutation(len(living))[: math.ceil(climate.toll * len(living))]
    return [Retire(living[index], "catastrophe") for index in order]


def quarantine(state: EcologyState, organelle_id: str, reason: str) -> list[Event]:
    """Takes an organelle out whose numbers are no longer finite; the rest of the population goes
    on."""
    return [
        Quarantined(state.generation, organelle_id, reason),
        _retire(Retire(organelle_id, "quarantined"), state),
    ]


def _found(
    decision: Found,
    state: EcologyState,
    store: BlobStore,
    layout: AdapterLayout,
    prices: Prices,
    draw: Draw,
) -> Born:
    organelle_id = state.new_id()
    ref = decision.weights
    if ref is None:
        # Scaling 1 keeps ΔW = B·A at every rank, so that weights mean the same whatever rank holds
        # them.
        weights = AdapterWeights.random(
            layout, decision.rank, 1.0, draw("found", organelle_id), decision.b_std
        )
        ref = store.put_weights(weights)
    state.ledger.open(organelle_id)
    state.ledger.mint(organelle_id, prices.dowry)
    genome = Genome(ref, decision.rank, decision.traits)
    return _enter(
        state,
        organelle_id,
        genome,
        store.put_optimizer_state(OptimizerState()),
        (),
        decision.operator,
    )


def _birth(
    decision: Birth, state: EcologyState, store: BlobStore, prices: Prices, draw: Draw
) -> Born:
    organelle_id = state.new_id()
    parents = [state.population[parent] for parent in decision.parents]
    weights = decision.operator(
        [_as_parent(p, store, decision.inheritance) for p in parents], draw("breed", organelle_id)
    )
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    _endow(organelle_id, decision.parents, prices.dowry // len(parents), state)
    believed = state.posteriors.get(parents[0].id, {})
    state.posteriors[organelle_id] = {
        cell: posterior.discounted(HEARSAY) for cell, posterior in believed.items()
    }
    optimizer_state = _inherited(decision, parents, weights.rank, store)
    return _enter(state, organelle_id, genome, optimizer_state, decision.parents, decision.name)


def _propose(
    decision: Propose, state: EcologyState, store: BlobStore, prices: Prices, draw: Draw
) -> list[Event]:
    part = prices.dowry // len(decision.cells)
    if decision.is_child and any(state.ledger.balance(parent) < part for parent in decision.cells):
        return []  # a birth in the same generation left too little
    organelle_id = state.new_id()
    parents = [_as_parent(state.population[parent], store) for parent in decision.cells]
    weights = decision.operator(parents, draw("merge", organelle_id))
    if weights.rank > decision.rank:
        weights = truncated(weights, decision.rank)
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    child = Challenger(
        organelle_id, genome, decision.name, decision.by, decision.is_child, decision.cells
    )
    state.challengers[organelle_id] = child
    if child.is_child:
        _endow(organelle_id, child.parents, part, state)
    return [Proposed(state.generation, organelle_id, decision.name, child.parents, genome.weights)]


def _recall(decision: Recall, state: EcologyState) -> Proposed:
    organelle_id, former, homes = (
        state.new_id(),
        decision.former,
        {decision.organelle_id: decision.cells},
    )
    genome = Genome(
        former.weights, former.rank, state.population[decision.organelle_id].genome.traits
    )
    state.challengers[organelle_id] = Challenger(
        organelle_id, genome, "recall", decision.by, False, homes, former=former
    )
    return Proposed(
        state.generation, organelle_id, "recall", (decision.organelle_id,), genome.weights
    )


def _look_at(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> list[Event]:
    child = decision.child
    if decision.verdict == "go on":
        state.challengers[child.id] = (
            child if decision.operator is None else _anew(decision, state, store, draw)
        )
        return []
    del state.challengers[child.id]
    shown = child.against_the_better
    gated = Gated(
        state.generation, child.id, decision.verdict, shown.wins, shown.ties, shown.losses
    )
    if decision.verdict == "reject":
        if child.is_child:
            _return_dowry(child, state)
        regressed = state.population.get(child.parents[0])
        if child.former and regressed and regressed.former == child.former:
            state.population[regressed.id] = replace(regressed, former=None)  # it was no better
        return [gated]
    if child.is_child:
        return [gated, _admit(child, state, store)]
    return [
        gated,
        _restore(child, state) if child.former else _become(decision, state, store, draw),
    ]


def _endow(
    organelle_id: OrganelleId, parents: Sequence[OrganelleId], part: int, state: EcologyState
) -> None:
    """A child's account, with so much from each of its parents."""
    state.ledger.open(organelle_id)
    for parent in parents:
        state.ledger.transfer(parent, organelle_id, part)


def _return_dowry(child: Challenger, state: EcologyState) -> None:
    """To the parents as it came; the part of the dead is lost."""
    part = state.ledger.balance(child.id) // len(child.parents)
    for parent in child.parents:
        if parent in state.population:
            state.ledger.transfer(child.id, parent, part)
    state.ledger.close(child.id)


def _anew(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> Challenger:
    """The child as the operator makes it of what its only parent is now."""
    assert decision.operator is not None, "expected the operator that makes another self"
    child, (organelle_id,) = decision.child, decision.child.parents
    weights = decision.operator(
        [_as_parent(state.population[organelle_id], store)], draw("anew", child.id)
    )
    return replace(
        child, genome=replace(child.genome, weights=store.put_weights(weights), rank=weights.rank)
    )


def _become(decision: Probation, state: EcologyState, store: BlobStore, draw: Draw) -> Resized:
    """The parent changes as the operator says, and is at home where it was."""
    genome = _anew(decision, state, store, draw).genome
    (organelle_id,) = decision.child.parents
    before, after = (
        store.weights(ref) for ref in (state.genome(organelle_id).weights, genome.weights)
    )
    kept = sum(inner(after, after).values()) / (sum(inner(before, before).values()) or 1.0)
    state.population[organelle_id] = replace(
        state.population[organelle_id], genome=genome, former=None
    )
    state.archive.follow(organelle_id, genome.weights, genome.rank, state.generation)
    return Resized(state.generation, organelle_id, genome.rank, kept, genome.weights)


def _restore(child: Challenger, state: EcologyState) -> Restored:
    """An organelle becomes what it was: weights, memory, and what was believed of it."""
    (organelle_id,) = child.parents
    former = state.population[
        organelle_id
    ].former  # an upheaval may just have voided what was believed of it
    assert former is not None, "expected a former self to come back to"
    state.population[organelle_id] = replace(
        state.population[organelle_id],
        genome=child.genome,
        optimizer_state=former.optimizer_state,
        former=None,
    )
    state.posteriors[organelle_id] = {**state.posteriors.get(organelle_id, {}), **former.posteriors}
    state.archive.follow(organelle_id, former.weights, former.rank, state.generation)
    return Restored(state.generation, organelle_id, former.weights)


def _admit(child: Challenger, state: EcologyState, store: BlobStore) -> Born:
    """The child comes to life at the home of its parents, with what was believed of them there."""
    believed = state.posteriors.setdefault(child.id, {})
    for parent, cells in child.cells.items():
        of_parent = state.posteriors.get(parent, {})
        for cell in cells:
            if cell in of_parent:
                believed[cell] = of_parent[cell]
                of_parent[cell] = of_parent[cell].discounted(HEARSAY)
        state.archive.pass_on(parent, cells, child.id, child.genome.weights, child.genome.rank)
    return _enter(
        state,
        child.id,
        child.genome,
        store.put_optimizer_state(OptimizerState()),
        child.parents,
        child.operator,
    )


def _resize(decision: Resize, state: EcologyState, store: BlobStore, draw: Draw) -> list[Event]:
    organelle = state.population[decision.organelle_id]
    weights, optimizer_state = (
        store.weights(organelle.genome.weights),
        store.optimizer_state(organelle.optimizer_state),
    )
    carried = shares(weights)
    weakest = carried[-1] * len(carried)
    if decision.rank > weights.rank:
        if weakest < decision.share:
            return []
        kept, resized = 1.0, grown(weights, decision.rank, draw("grow", decision.organelle_id))
        optimizer_state = grown_optimizer_state(optimizer_state, weights, decision.rank)
    else:
        if weakest > decision.share or not carried.any():  # of who never learned nothing is known
            return []
        kept, resized = float(carried[: decision.rank].sum()), truncated(weights, decision.rank)
        # Its moments belong to directions that are no more, its age is its own.
        optimizer_state = OptimizerState(step=optimizer_state.step, notes=optimizer_state.notes)
    genome = replace(organelle.genome, weights=store.put_weights(resized), rank=decision.rank)
    state.population[decision.organelle_id] = replace(
        organelle,
        genome=genome,
        optimizer_state=store.put_optimizer_state(optimizer_state),
        former=None,
    )
    return [Resized(state.generation, decision.organelle_id, decision.rank, kept, genome.weights)]


def _as_parent(
    organelle: Organelle, store: BlobStore, inheritance: Inheritance = "lamarckian"
) -> Parent:
    """What it hands down: what it learned, or what it was born with."""
    if inheritance == "darwinian":
        return Parent(**vars(store.weights(organelle.inborn)))
    return Parent(
        **vars(store.weights(organelle.genome.weights)),
        optimizer_state=store.optimizer_state(organelle.optimizer_state),
    )


def _inherited(
    decision: Birth, parents: Sequence[Organelle], rank: int, store: BlobStore
) -> BlobRef:
    """An only parent's memory, if learning is inherited and the ranks agree: moments are per
    parameter."""
    (first, *others) = parents
    fits = not others and rank == first.genome.rank and decision.inheritance == "lamarckian"
    return first.optimizer_state if fits else store.put_optimizer_state(OptimizerState())


def _enter(
    state: EcologyState,
    organelle_id: OrganelleId,
    genome: Genome,
    optimizer_state: BlobRef,
    parents: tuple[OrganelleId, ...],
    operator: str,
) -> Born:
    now, inborn = state.generation, genome.weights
    state.population[organelle_id] = Organelle(
        organelle_id, genome, optimizer_state, parents, operator, now, inborn
    )
    return Born(now, organelle_id, operator, parents, inborn, genome.traits)


def _upheave(decision: Upheaval, state: EcologyState) -> Upheaved:
    state.archive.empty(decision.cells)
    void = dict.fromkeys(decision.cells, FALLEN)
    for organelle_id, organelle in state.population.items():
        state.posteriors.setdefault(organelle_id, {}).update(void)
        if (former := organelle.former) is not None:  # what it was would fail there, too
            former = replace(former, posteriors={**former.posteriors, **void})
            state.population[organelle_id] = replace(organelle, former=former)
    for name in decision.cells:
        state.drift_detectors.pop(name, None)  # what was usual there is so no more
    return Upheaved(state.generation, decision.cells)


def _retire(decision: Retire, state: EcologyState) -> Retired:
    gone = state.population.pop(decision.organelle_id)
    state.posteriors.pop(decision.organelle_id, None)
    rest = state.ledger.close(decision.organelle_id)
    if not state.population:  # what was usual was theirs: who starts anew did not fall from it
        state.drift_detectors.clear()
    return Retired(state.generation, gone.id, decision.cause, state.generation - gone.born, rest)
