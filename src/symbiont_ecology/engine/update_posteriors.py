"""What a generation showed: posteriors, success averages and the archive, for the weights that
acted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import DriftDetector, EcologyState, Elite, Outcome, cell_name
from symbiont_ecology.ecology.deaths import quarantine
from symbiont_ecology.ecology.organelle import SuccessPosterior
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Archived, Event


def update_posteriors(
    outcomes: Sequence[Outcome], updates: Sequence[Update], turn: Turn
) -> list[Event]:
    """Updates what is known of everyone who practised, what cells pay, and who holds them."""
    state, events = turn.state, list[Event]()
    verdicts: dict[str, list[float]] = defaultdict(list)
    practice = [outcome for outcome in outcomes if outcome.assignment.purpose == "practice"]
    for outcome in practice:
        if not outcome.verdicts:
            continue
        organelle_id, cell = outcome.assignment.organelle_id, outcome.assignment.cell
        name = cell_name(cell)
        verdicts[name] += outcome.verdicts
        posteriors = state.posteriors.setdefault(organelle_id, {})
        posterior = posteriors.get(name, SuccessPosterior())
        posteriors[name] = posterior.faded(turn.allocator.fade, outcome.verdicts)
        genome = state.population[organelle_id].genome
        score = posteriors[name].bound
        elite = Elite(organelle_id, genome.weights, genome.rank, score, state.generation)
        if state.archive.add(cell, elite):
            events.append(Archived(state.generation, organelle_id, name, score, genome.weights))
    for organelle_id in sorted({outcome.assignment.organelle_id for outcome in practice}):
        genome = state.population[organelle_id].genome
        state.archive.follow(organelle_id, genome, state.generation)
    for name, news in verdicts.items():
        state.success[name] = turn.prices.update_success(state.success[name], news)
        detector = state.drift_detectors.get(name, DriftDetector())
        state.drift_detectors[name] = detector.after(news)
    _update_effort(state, practice, updates)
    return events


def _update_effort(
    state: EcologyState, practice: Sequence[Outcome], updates: Sequence[Update]
) -> None:
    """What a rollout of each cell took, its lessons included: a moving average over generations."""
    flops, rollouts = Counter[str](), Counter[str]()
    for outcome in practice:
        name = cell_name(outcome.assignment.cell)
        flops[name] += outcome.cost.flops
        rollouts[name] += len(outcome.assignment.items) * max(outcome.assignment.samples, 1)
    for update in updates:
        flops.update(update.flops)
    for name, count in rollouts.items():
        latest = flops[name] / count
        state.effort[name] = 0.5 * (state.effort.get(name, latest) + latest)


def install(updates: Sequence[Update], state: EcologyState) -> list[Event]:
    """Installs what was learned. Whoever met a number that is not finite is quarantined."""
    events: list[Event] = []
    for update in updates:
        if update.is_sick:
            reason = "a loss, gradient or weight was not finite"
            events += quarantine(state, update.organelle_id, reason)
            continue
        organelle = state.population[update.organelle_id]
        genome, memory = replace(organelle.genome, weights=update.weights), update.optimizer_state
        state.population[organelle.id] = replace(organelle, genome=genome, optimizer_state=memory)
    return events
