"""Trials: challengers go on probation, are judged, and take over or leave."""

from __future__ import annotations

from dataclasses import replace

from symbiont_ecology.ecology.births import HEARSAY, Materials, as_parent, enter, pay_dowry
from symbiont_ecology.ecology.challengers import Challenger
from symbiont_ecology.ecology.decisions import (
    Judge,
    ProposeChild,
    ProposeFormerSelf,
    ProposeVariant,
)
from symbiont_ecology.ecology.organelle import Genome, Organelle
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.events import Born, Event, Gated, Proposed, Resized, Restored
from symbiont_ecology.types import OrganelleId
from symbiont_ecology.weights import OptimizerState
from symbiont_ecology.weights.deltas import inner, truncated


def propose_child(decision: ProposeChild, state: EcologyState, materials: Materials) -> list[Event]:
    """A child of several parents goes on probation."""
    part = materials.prices.dowry // len(decision.cells)
    if any(state.ledger.balance(parent) < part for parent in decision.cells):
        return []  # a birth in the same generation left too little
    child, store = state.new_id(), materials.store
    parents = [as_parent(state.population[parent], store) for parent in decision.cells]
    weights = decision.operator(parents, materials.draw("merge", child))
    if weights.rank > decision.rank:
        weights = truncated(weights, decision.rank)
    genome = Genome(store.put_weights(weights), weights.rank, decision.traits)
    challenger = Challenger(
        child, genome, decision.name, by=decision.by, kind="child", cells=decision.cells
    )
    pay_dowry(child, challenger.parents, part, state)
    return [_admit_to_probation(challenger, state)]


def propose_variant(
    decision: ProposeVariant, state: EcologyState, materials: Materials
) -> list[Event]:
    """A variant of an organelle goes on probation."""
    variant, parent = state.new_id(), state.population[decision.organelle_id]
    challenger = Challenger(
        variant,
        parent.genome,
        decision.name,
        by=decision.by,
        kind="variant",
        cells={parent.id: decision.cells},
    )
    first = Judge(challenger, "go on", decision.operator)
    challenger = _made_anew(first, state, materials, "merge")
    return [_admit_to_probation(challenger, state)]


def propose_former_self(decision: ProposeFormerSelf, state: EcologyState) -> list[Event]:
    """What an organelle was goes on probation against what it is."""
    former, traits = decision.former, state.population[decision.organelle_id].genome.traits
    challenger = Challenger(
        state.new_id(),
        Genome(former.weights, former.rank, traits),
        "recall",
        by=decision.by,
        kind="former self",
        cells={decision.organelle_id: decision.cells},
        former=former,
    )
    return [_admit_to_probation(challenger, state)]


def advance_trial(decision: Judge, state: EcologyState, materials: Materials) -> list[Event]:
    """A probation goes on, or ends."""
    challenger = decision.challenger
    if decision.decision == "go on":
        if decision.operator is not None:
            challenger = _made_anew(decision, state, materials, "anew")
        state.challengers[challenger.id] = challenger
        return []
    del state.challengers[challenger.id]
    pairs = challenger.against_the_better
    gated = Gated(
        state.generation,
        id=challenger.id,
        verdict=decision.decision,
        wins=pairs.wins,
        ties=pairs.ties,
        losses=pairs.losses,
    )
    if decision.decision == "reject":
        _reject(challenger, state)
        return [gated]
    match challenger.kind:
        case "child":
            return [gated, _admit_child(challenger, state, materials)]
        case "variant":
            return [gated, _become(decision, state, materials)]
        case "former self":
            return [gated, _restore(challenger, state)]


def _admit_to_probation(challenger: Challenger, state: EcologyState) -> Proposed:
    state.challengers[challenger.id] = challenger
    return Proposed(
        state.generation,
        challenger.id,
        challenger.operator,
        challenger.parents,
        challenger.genome.weights,
    )


def _made_anew(
    decision: Judge, state: EcologyState, materials: Materials, purpose: str
) -> Challenger:
    """A variant as the operator makes it of what its organelle is now."""
    challenger, store = decision.challenger, materials.store
    (parent,) = challenger.parents
    assert decision.operator is not None, "a variant has an operator that makes it"
    weights = decision.operator(
        [as_parent(state.population[parent], store)], materials.draw(purpose, challenger.id)
    )
    genome = Genome(store.put_weights(weights), weights.rank, dict(challenger.genome.traits))
    return replace(challenger, genome=genome)


def _reject(challenger: Challenger, state: EcologyState) -> None:
    """A rejected child's dowry goes back to its parents; the part of the dead is lost."""
    if challenger.kind == "child":
        part = state.ledger.balance(challenger.id) // len(challenger.parents)
        for parent in challenger.parents:
            if parent in state.population:
                state.ledger.transfer(challenger.id, parent, part)
        state.ledger.close(challenger.id)
    rival = state.population.get(challenger.parents[0])
    if challenger.former and rival and rival.former == challenger.former:
        state.population[rival.id] = replace(rival, former=None)  # it was no better


def _admit_child(challenger: Challenger, state: EcologyState, materials: Materials) -> Born:
    """The child is born at the home of its parents, with their posteriors there."""
    inherited = state.posteriors.setdefault(challenger.id, {})
    genome = challenger.genome
    for parent, cells in challenger.cells.items():
        of_parent = state.posteriors.get(parent, {})
        for cell in cells:
            if cell in of_parent:
                inherited[cell] = of_parent[cell]
                of_parent[cell] = of_parent[cell].discounted(HEARSAY)
        state.archive.pass_on(parent, cells, heir=challenger.id, genome=genome)
    newborn = Organelle(
        id=challenger.id,
        genome=genome,
        optimizer_state=materials.store.put_optimizer_state(OptimizerState()),
        parents=challenger.parents,
        operator=challenger.operator,
        born=state.generation,
        inborn=genome.weights,
    )
    return enter(newborn, state)


def _become(decision: Judge, state: EcologyState, materials: Materials) -> Resized:
    """The organelle becomes its variant, and stays at home where it was."""
    genome = _made_anew(decision, state, materials, "anew").genome
    (organelle_id,) = decision.challenger.parents
    before, after = (
        materials.store.weights(ref) for ref in (state.genome(organelle_id).weights, genome.weights)
    )
    kept = sum(inner(after, after).values()) / (sum(inner(before, before).values()) or 1.0)
    _change(organelle_id, state, genome)
    return Resized(state.generation, organelle_id, genome.rank, kept, genome.weights)


def _restore(challenger: Challenger, state: EcologyState) -> Restored:
    """An organelle becomes what it was: weights, optimiser state and posteriors."""
    (organelle_id,) = challenger.parents
    former = state.population[organelle_id].former  # an upheaval may have voided its posteriors
    assert former is not None, "expected a former self to come back to"
    _change(organelle_id, state, challenger.genome)
    state.population[organelle_id] = replace(
        state.population[organelle_id], optimizer_state=former.optimizer_state
    )
    state.posteriors[organelle_id] = {**state.posteriors.get(organelle_id, {}), **former.posteriors}
    return Restored(state.generation, organelle_id, former.weights)


def _change(organelle_id: OrganelleId, state: EcologyState, genome: Genome) -> None:
    organelle = state.population[organelle_id]
    state.population[organelle_id] = replace(organelle, genome=genome, former=None)
    state.archive.follow(organelle_id, genome, state.generation)
