"""The population manager: carries out what a strategy decided, one decision after the other.

Births, deaths and trials are files of their own. Energy moves with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from symbiont_ecology.ecology.births import Materials, found, give_birth
from symbiont_ecology.ecology.deaths import retire
from symbiont_ecology.ecology.decisions import (
    Birth,
    Decision,
    Found,
    Judge,
    KeepSelf,
    ProposeChild,
    ProposeFormerSelf,
    ProposeVariant,
    Resize,
    Retire,
    Upheaval,
)
from symbiont_ecology.ecology.posterior import SuccessPosterior
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.trials import (
    advance_trial,
    propose_child,
    propose_former_self,
    propose_variant,
)
from symbiont_ecology.events import Event, Resized, Upheaved
from symbiont_ecology.weights import OptimizerState
from symbiont_ecology.weights.deltas import grown, grown_optimizer_state, shares, truncated

FALLEN = SuccessPosterior(0.0, 4.0)
"""The posterior of everyone alive in cells where the world changed: they were just seen to fail."""


def carry_out(
    decisions: Iterable[Decision], state: EcologyState, materials: Materials
) -> list[Event]:
    """Carries out the decisions in their order, and returns the events that record them."""
    return [event for decision in decisions for event in _carry_out(decision, state, materials)]


def _carry_out(decision: Decision, state: EcologyState, materials: Materials) -> list[Event]:
    match decision:
        case Found():
            return [found(decision, state, materials)]
        case Birth():
            return [give_birth(decision, state, materials)]
        case ProposeChild():
            return propose_child(decision, state, materials)
        case ProposeVariant():
            return propose_variant(decision, state, materials)
        case ProposeFormerSelf():
            return propose_former_self(decision, state)
        case Judge():
            return advance_trial(decision, state, materials)
        case KeepSelf(organelle_id):
            kept = state.population[organelle_id].noted(state.posteriors.get(organelle_id, {}))
            state.population[organelle_id] = kept
            return []
        case Resize():
            return _resize(decision, state, materials)
        case Retire():
            return [retire(decision, state)]
        case Upheaval():
            return [_upheave(decision, state)]


def _resize(decision: Resize, state: EcologyState, materials: Materials) -> list[Event]:
    organelle, store = state.population[decision.organelle_id], materials.store
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
