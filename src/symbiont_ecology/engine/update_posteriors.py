"""Memory of a generation: beliefs, success averages and the archive, from the weights that
acted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import (
    DriftDetector,
    EcologyState,
    Elite,
    Outcome,
    SuccessPosterior,
    cell_name,
)
from symbiont_ecology.ecology.population import quarantine
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.events import Archived, Event
from symbiont_ecology.routing.allocators import Allocator


def update_posteriors(
    state: EcologyState,
    outcomes: Sequence[Outcome],
    updates: Sequence[Update],
    prices: Prices,
    allocator: Allocator,
) -> list[Event]:
    """Updates what is believed of everyone who practised, what cells pay and take, and who holds
    them."""
    events: list[Event] = []
    verdicts: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose != "practice" or not outcome.verdicts:
            continue
        organelle_id, cell = outcome.trial.organelle_id, outcome.trial.cell
        name = cell_name(cell)
        verdicts[name] += outcome.verdicts
        posteriors = state.posteriors.setdefault(organelle_id, {})
        posteriors[name] = posteriors.get(name, SuccessPosterior()).faded(
            allocator.fade, outcome.verdicts
        )
        genome = state.population[organelle_id].genome
        elite = Elite(
            organelle_id, genome.weights, genome.rank, posteriors[name].bound, state.generation
        )
        if state.archive.add(cell, elite):
            events.append(
                Archived(state.generation, organelle_id, name, elite.score, elite.weights)
            )
    for organelle_id in sorted(
        {outcome.trial.organelle_id for outcome in outcomes if outcome.trial.purpose == "practice"}
    ):
        genome = state.population[organelle_id].genome
        state.archive.follow(organelle_id, genome.weights, genome.rank, state.generation)
    for name, seen in verdicts.items():
        state.success[name] = prices.update_success(state.success[name], seen)
        state.drift_detectors[name] = state.drift_detectors.get(name, DriftDetector()).after(seen)
    _note_effort(state, outcomes, updates)
    return events


def _note_effort(
    state: EcologyState, outcomes: Sequence[Outcome], updates: Sequence[Update]
) -> None:
    """What a rollout of each cell took, its lessons included: a moving average over generations."""
    flops, asked = Counter[str](), Counter[str]()
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            name = cell_name(outcome.trial.cell)
            flops[name] += outcome.cost.flops
            asked[name] += len(outcome.trial.items) * max(outcome.trial.samples, 1)
    for update in updates:
        flops.update(update.flops)
    for name, count in asked.items():
        latest = flops[name] / count
        state.effort[name] = 0.5 * (state.effort.get(name, latest) + latest)


def install(state: EcologyState, updates: Sequence[Update]) -> list[Event]:
    """Installs what was learned; whoever met a number that is not finite is quarantined."""
    events: list[Event] = []
    for update in updates:
        if update.is_sick:
            events += quarantine(
                state, update.organelle_id, "a loss, gradient or weight was not finite"
            )
            continue
        organelle = state.population[update.organelle_id]
        genome = replace(organelle.genome, weights=update.weights)
        state.population[update.organelle_id] = replace(
            organelle, genome=genome, optimizer_state=update.optimizer_state
        )
    return events
