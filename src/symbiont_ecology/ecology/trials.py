"""Trials: challengers go on probation, are judged, and take over or leave."""

from __future__ import annotations

from dataclasses import replace

from symbiont_ecology.ecology import decisions as decide
from symbiont_ecology.ecology.births import HEARSAY, Materials
from symbiont_ecology.ecology.gate import Challenger
from symbiont_ecology.ecology.organelle import Genome
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.events import Born, Event, Gated, Proposed, Resized, Restored
from symbiont_ecology.types import OrganelleId
from symbiont_ecology.weights.deltas import inner, truncated


def propose_child(decision: decide.ProposeChild, materials: Materials) -> list[Event]:
    """A child of several parents goes on probation."""
    state, part = materials.state, materials.prices.dowry // len(decision.cells)
    if any(state.ledger.balance(parent) < part for parent in decision.cells):
        return []  # a birth in the same generation left too little
    child = state.new_id()
    parents = [materials.as_parent(parent, "lamarckian") for parent in decision.cells]
    weights = decision.operator(parents, materials.draw("merge", child))
    if weights.rank > decision.rank:
        weights = truncated(weights, decision.rank)
    genome = Genome(materials.store.put_weights(weights), weights.rank, decision.traits)
    materials.pay_dowry(child, tuple(decision.cells), part)
    challenger = Challenger(
        child, genome, decision.name, decision.by, "child", cells=decision.cells
    )
    return _on_probation(challenger, state)


def propose_variant(decision: decide.ProposeVariant, materials: Materials) -> list[Event]:
    """A variant of an organelle goes on probation."""
    state, parent = materials.state, decision.organelle_id
    variant, genome, cells = state.new_id(), state.genome(parent), {parent: decision.cells}
    challenger = Challenger(variant, genome, decision.name, decision.by, "variant", cells=cells)
    first = decide.Judge(challenger, "go on", decision.operator)
    return _on_probation(_made_anew(first, materials, "merge"), state)


def propose_former_self(decision: decide.ProposeFormerSelf, materials: Materials) -> list[Event]:
    """What an organelle was goes on probation against what it is."""
    state, former, cells = materials.state, decision.former, {decision.organelle_id: decision.cells}
    traits = state.genome(decision.organelle_id).traits
    genome = Genome(former.weights, former.rank, traits)
    challenger = Challenger(
        state.new_id(), genome, "recall", decision.by, "former self", cells=cells, former=former
    )
    return _on_probation(challenger, state)


def advance_trial(decision: decide.Judge, materials: Materials) -> list[Event]:
    """A probation goes on, or ends."""
    challenger, state = decision.challenger, materials.state
    if decision.decision == "go on":
        if decision.operator is not None:
            challenger = _made_anew(decision, materials, "anew")
        state.challengers[challenger.id] = challenger
        return []
    del state.challengers[challenger.id]
    pairs = vars(challenger.against_the_better)
    gated = Gated(state.generation, challenger.id, decision.decision, **pairs)
    if decision.decision == "reject":
        _reject(challenger, state)
        return [gated]
    match challenger.kind:
        case "child":
            return [gated, _admit_child(challenger, materials)]
        case "variant":
            return [gated, _become(decision, materials)]
        case "former self":
            return [gated, _restore(challenger, state)]


def _on_probation(challenger: Challenger, state: EcologyState) -> list[Event]:
    state.challengers[challenger.id] = challenger
    weights, parents = challenger.genome.weights, challenger.parents
    return [Proposed(state.generation, challenger.id, challenger.operator, parents, weights)]


def _made_anew(decision: decide.Judge, materials: Materials, purpose: str) -> Challenger:
    """A variant as the operator makes it of what its organelle is now."""
    challenger = decision.challenger
    (organelle_id,) = challenger.parents
    assert decision.operator is not None, "a variant has an operator that makes it"
    parent = materials.as_parent(organelle_id, "lamarckian")
    weights = decision.operator([parent], materials.draw(purpose, challenger.id))
    ref = materials.store.put_weights(weights)
    genome = Genome(ref, weights.rank, dict(challenger.genome.traits))
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


def _admit_child(challenger: Challenger, materials: Materials) -> Born:
    """The child is born at the home of its parents, with their posteriors there."""
    child, genome, state = challenger.id, challenger.genome, materials.state
    inherited = state.posteriors.setdefault(child, {})
    for parent, cells in challenger.cells.items():
        of_parent = state.posteriors.get(parent, {})
        for cell in cells:
            if cell in of_parent:
                inherited[cell] = of_parent[cell]
                of_parent[cell] = of_parent[cell].discounted(HEARSAY)
        state.archive.pass_on(parent, cells, heir=child, genome=genome)
    return materials.enter(child, genome, challenger.operator, challenger.parents)


def _become(decision: decide.Judge, materials: Materials) -> Resized:
    """The organelle becomes its variant, and stays at home where it was."""
    genome, state = _made_anew(decision, materials, "anew").genome, materials.state
    (organelle_id,) = decision.challenger.parents
    refs = state.genome(organelle_id).weights, genome.weights
    before, after = (materials.store.weights(ref) for ref in refs)
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
