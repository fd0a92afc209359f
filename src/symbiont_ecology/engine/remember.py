"""Memory of a generation: beliefs, success averages and the archive, from the weights that acted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import Belief, EcologyState, Elite, Outcome, Watch, cell_name
from symbiont_ecology.ecology.population import quarantine
from symbiont_ecology.economics import Prices
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.events import Archived, Event
from symbiont_ecology.routing.allocators import Allocator


def remember(
    state: EcologyState,
    outcomes: Sequence[Outcome],
    updates: Sequence[Update],
    prices: Prices,
    allocator: Allocator,
) -> list[Event]:
    """Updates what is believed of everyone who practised, what cells pay and take, and who holds them."""
    events: list[Event] = []
    verdicts: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose != "practice" or not outcome.verdicts:
            continue
        who, cell = outcome.trial.who, outcome.trial.cell
        name = cell_name(cell)
        verdicts[name] += outcome.verdicts
        beliefs = state.beliefs.setdefault(who, {})
        beliefs[name] = beliefs.get(name, Belief()).faded(allocator.fade, outcome.verdicts)
        genome = state.population[who].genome
        elite = Elite(who, genome.weights, genome.rank, beliefs[name].bound, state.generation)
        if state.archive.add(cell, elite):
            events.append(Archived(state.generation, who, name, elite.score, elite.weights))
    for who in sorted({outcome.trial.who for outcome in outcomes if outcome.trial.purpose == "practice"}):
        genome = state.population[who].genome
        state.archive.follow(who, genome.weights, genome.rank, state.generation)
    for name, seen in verdicts.items():
        state.success[name] = prices.update_success(state.success[name], seen)
        state.watches[name] = state.watches.get(name, Watch()).after(seen)
    _note_effort(state, outcomes, updates)
    return events


def _note_effort(state: EcologyState, outcomes: Sequence[Outcome], updates: Sequence[Update]) -> None:
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


def grow(state: EcologyState, updates: Sequence[Update]) -> list[Event]:
    """Installs what was learned; whoever met a number that is not finite is quarantined."""
    events: list[Event] = []
    for update in updates:
        if update.is_sick:
            events += quarantine(state, update.who, "a loss, gradient or weight was not finite")
            continue
        organelle = state.population[update.who]
        genome = replace(organelle.genome, weights=update.weights)
        state.population[update.who] = replace(organelle, genome=genome, memory=update.memory)
    return events
