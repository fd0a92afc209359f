"""One generation, top to bottom: retire, ask, act, learn, settle, update, install, tell.

This is artificial life on a language model. An organelle is a LoRA adapter on one frozen host, with
an account of energy. An answer costs its FLOPs. An answer that a verifier accepts earns the price
of its cell (a task family at a depth), which falls as the cell gets easy. Weights and step size are
heredity, mutated copies are offspring, debt is death. All organelles answer in one batched call,
and learn in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symbiont_ecology.ecology import HOST, Assignment, Decision, EcologyState, Outcome, cell_name
from symbiont_ecology.ecology.births import Materials, with_rule_traits
from symbiont_ecology.ecology.deaths import retire_the_bankrupt, strike
from symbiont_ecology.ecology.population import carry_out
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import act
from symbiont_ecology.engine.budget import affordable_assignments, budget_phase
from symbiont_ecology.engine.learn import learn
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.engine.settle import settle
from symbiont_ecology.engine.update_posteriors import install, update_posteriors
from symbiont_ecology.events import BatchShrunk, Born, Event, EventLog, GenerationEnded, Retired
from symbiont_ecology.rng import Draw


def run_generation(state: EcologyState, runtime: Runtime, log: EventLog) -> GenerationEnded:
    """Advances the state by one generation, writes its events and returns the last of them."""
    draw, before = Draw(state.seed, state.generation), state.spent
    # What counts as right may have changed, and what it pays: organelles see it in their verdicts.
    runtime = runtime.at(*budget_phase(state, runtime.milestones), state.generation)
    context, memory_mb = runtime.context, runtime.host.memory_mb

    # Retire first: the dead must not breed, and the newborn need their slots.
    events = retire_the_bankrupt(state, context.prices) if runtime.strategy.is_mortal else []
    events += strike(state, runtime.climate, draw)

    # Ask: the strategy says who faces which items, within what each can pay and the run may spend.
    assignments = runtime.strategy.ask(state, context, draw)
    assignments = affordable_assignments(assignments, state, runtime, draw)

    # Act: the population is the batch. Verifiers have the only say on what was right.
    outcomes = act(assignments, state, runtime, draw)

    # Learn: one step for everyone who practised. The new weights wait: the old ones earned the
    # verdicts.
    updates = learn(outcomes, state, runtime, draw)
    if runtime.host.memory_mb < memory_mb:
        events.append(BatchShrunk(state.generation, runtime.host.memory_mb))

    # Settle: verified answers are energy; compute, rent and tickets cost it.
    events += settle(state, outcomes, updates, runtime)

    # Update: posteriors, prices and the archive, which keeps the weights that acted.
    events += update_posteriors(state, outcomes, updates, runtime)

    # Install: what was learned takes the place of what acted.
    events += install(state, updates)

    # Tell: the strategy sees the outcomes and decides. In an ecology its mechanisms do: who breeds,
    # who is founded anew, who tries to be leaner, whether the world has changed.
    decisions = runtime.strategy.tell(state, outcomes, context, draw)
    events += execute(decisions, state, runtime, draw)

    summary = _summary(state, outcomes, events, before)
    state.next_seq = log.emit(state.next_seq, *events, summary)
    state.generation += 1
    return summary


def execute(
    decisions: Iterable[Decision], state: EcologyState, runtime: Runtime, draw: Draw
) -> list[Event]:
    """Carries out what was decided, in that order."""
    materials = Materials(runtime.store, runtime.host.layout, runtime.context.prices, draw)
    if runtime.learning_rule.rule_count > 1:
        decisions = with_rule_traits(list(decisions), draw("rules"))
    return carry_out(decisions, state, materials)


def found_population(state: EcologyState, runtime: Runtime, log: EventLog) -> None:
    """Generation 0 begins: measures the exchange rate on the bare host, founds the population."""
    context, draw = runtime.context, Draw(state.seed, -1)
    cells = context.tasks.cells
    probes = [context.tasks.draw(cell, 2, draw("calibrate", *cell)) for cell in cells]
    assignments = [Assignment(HOST, items, purpose="probe") for items in probes]
    outcomes = act(assignments, state, runtime, draw)
    state.mean_rollout_flops = state.spent.flops // state.spent.rows
    success = sum(outcome.accuracy for outcome in outcomes) / len(outcomes)
    state.success = {cell_name(cell): success for cell in cells}
    events = settle(state, outcomes, [], runtime)
    events += execute(runtime.strategy.found(context), state, runtime, draw)
    state.next_seq = log.emit(state.next_seq, *events)


def _summary(
    state: EcologyState, outcomes: Sequence[Outcome], events: Sequence[Event], before: Cost
) -> GenerationEnded:
    practice = [outcome for outcome in outcomes if outcome.assignment.purpose == "practice"]
    verdicts = [verdict for outcome in practice for verdict in outcome.verdicts]
    return GenerationEnded(
        state.generation,
        population=len(state.population),
        births=sum(isinstance(event, Born) for event in events),
        deaths=sum(isinstance(event, Retired) for event in events),
        accuracy=sum(verdicts) / len(verdicts) if verdicts else None,
        coverage=state.archive.coverage,
        train_flops=state.spent.flops,
        energy_total=sum(state.ledger.balances.values()),
        rows=state.spent.rows - before.rows,
        calls=state.spent.calls - before.calls,
    )
