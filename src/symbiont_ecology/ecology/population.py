"""The population manager: carries out what a strategy decided, one decision after the other.

Births, deaths and trials are files of their own. Energy moves with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from symbiont_ecology.ecology import decisions as decide
from symbiont_ecology.ecology import trials
from symbiont_ecology.ecology.births import Materials, found, give_birth
from symbiont_ecology.ecology.deaths import retire
from symbiont_ecology.ecology.decisions import Decision, Resize, Upheaval
from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.events import Event, Resized, Upheaved
from symbiont_ecology.weights import OptimizerState
from symbiont_ecology.weights.deltas import grown, grown_optimizer_state, shares, truncated

FALLEN = SuccessPosterior(0.0, 4.0)
"""The posterior of everyone alive in cells where the world changed: they were just seen to fail."""


def carry_out(decisions: Iterable[Decision], materials: Materials) -> list[Event]:
    """Carries out the decisions in their order, and returns the events that record them."""
    return [event for decision in decisions for event in _carry_out(decision, materials)]


def _carry_out(decision: Decision, materials: Materials) -> list[Event]:
    state = materials.state
    match decision:
        case decide.Found():
            return [found(decision, materials)]
        case decide.Birth():
            return [give_birth(decision, materials)]
        case decide.ProposeChild():
            return trials.propose_child(decision, materials)
        case decide.ProposeVariant():
            return trials.propose_variant(decision, materials)
        case decide.ProposeFormerSelf():
            return trials.propose_former_self(decision, materials)
        case decide.Judge():
            return trials.advance_trial(decision, materials)
        case decide.KeepSelf(organelle_id):
            kept = state.population[organelle_id].noted(state.posteriors.get(organelle_id, {}))
            state.population[organelle_id] = kept
            return []
        case decide.Resize():
            return _resize(decision, materials)
        case decide.Retire():
            return [retire(decision, state)]
        case decide.Upheaval():
            return [_upheave(decision, state)]


def _resize(decision: Resize, materials: Materials) -> list[Event]:
    state, store = materials.state, materials.store
    organelle = state.population[decision.organelle_id]
    weights = store.weights(organelle.genome.weights)
    optimizer_state = store.optimizer_state(organelle.optimizer_state)
    carried = shares(weights)
    weakest = carried[-1] * len(carried)
    if decision.rank > weights.rank:
        if weakest < decision.share:
            return []
        kept = 1.0
        resized = grown(weights, decision.rank, materials.draw("grow", decision.organelle_id))
        optimizer_state = grown_optimizer_state(optimizer_state, weights, decision.rank)
    else:
        if weakest > decision.share or not carried.any():  # an adapter that never learned is 0
            return []
        kept = float(carried[: decision.rank].sum())
        resized = truncated(weights, decision.rank)
        # Its moments belong to directions that are gone, its age is its own.
        optimizer_state = OptimizerState(step=optimizer_state.step, notes=optimizer_state.notes)
    genome = replace(organelle.genome, weights=store.put_weights(resized), rank=decision.rank)
    ref = store.put_optimizer_state(optimizer_state)
    state.population[organelle.id] = replace(
        organelle, genome=genome, optimizer_state=ref, former=None
    )
    return [Resized(state.generation, organelle.id, decision.rank, kept, genome.weights)]


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
