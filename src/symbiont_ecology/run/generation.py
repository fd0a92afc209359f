"""One generation: retire, ask, act, learn, remember, settle, update, install, tell.

This is artificial life on a language model. An organelle is a LoRA adapter on one frozen host, with
an account of energy. An answer costs its FLOPs. An answer that a verifier accepts earns the price
of its cell (a task family at a depth), which falls as the cell gets easy. Weights and learning rate
are heredity, mutated copies are offspring, debt is death. All organelles answer in one batched
call, and learn in another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from symbiont_ecology.base.event_log import EventLog
from symbiont_ecology.base.events import BatchShrunk, Born, Event, GenerationEnded, Retired
from symbiont_ecology.base.fence import as_list
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import OrganelleId, cell_name
from symbiont_ecology.ecology import HOST, Assignment, Decision, EcologyState, Found, Outcome
from symbiont_ecology.ecology.decisions import ApplyContext, retire_the_bankrupt
from symbiont_ecology.ecology.strategies import strategies
from symbiont_ecology.run.act import act
from symbiont_ecology.run.budget import affordable_assignments, budget_phase
from symbiont_ecology.run.learn import learn
from symbiont_ecology.run.remember import remember
from symbiont_ecology.run.runtime import GenerationContext, Runtime
from symbiont_ecology.run.settle import install, part_faults, settle, transcribe, update_posteriors
from symbiont_ecology.run.trial import hold_trial
from symbiont_ecology.run.warm import warm_newborns, warm_start


def run_generation(state: EcologyState, runtime: Runtime, log: EventLog) -> GenerationEnded:
    """Advance the state by one generation, write its events and return the last of them."""
    # What counts as right may have changed, and what it pays: organelles see it in their verdicts.
    context = runtime.at(state, *budget_phase(state, runtime.milestones))
    strategy, before, memory_mb = context.strategy, state.spent, context.host.memory_mb

    # Retire first: the dead must not breed, and the newborn need their slots.
    events = retire_the_bankrupt(state, context.prices) if "deaths" in strategy.wants else []

    # Ask: the strategy says who faces which items, within what each can pay and the run may spend.
    assignments = affordable_assignments(strategy.ask(context.strategy_context), context)

    # Act: the population is the batch. Verifiers have the only say on what was right.
    outcomes = act(assignments, context)

    # Learn: one step for everyone who practised. The new weights wait: the old ones earned the
    # verdicts.
    updates = learn(outcomes, context)

    # Remember: users keep the last answers that they were given, and what they thought of them.
    remember(outcomes, context)

    # Write down what was replied, and at which price: for people, nothing here reads it again.
    context.transcripts.write(transcribe(outcomes, context))

    # Settle: verified answers are energy; compute, rent and tickets cost it.
    events += settle(outcomes, updates, context)

    # Update: posteriors, prices and the archive, which keeps the weights that acted.
    events += update_posteriors(outcomes, updates, context)

    # Install: what was learned takes the place of what acted.
    events += install(updates, state)

    # Tell: the strategy sees the outcomes and decides. In an ecology its mechanisms do: who breeds,
    # who is founded anew, who tries to be leaner, whether the world has changed.
    events += execute(strategy.tell(replace(context.strategy_context, outcomes=outcomes)), context)

    # Parts that others wrote may fail, and are named. One that does nothing else ends the run.
    events += part_faults(context) + _shrinking(memory_mb, context)

    summary = _summary(state, outcomes, events, before)
    state.next_seq = log.emit(state.next_seq, *events, summary)
    state.generation += 1
    return summary


def execute(decisions: Iterable[Decision], context: GenerationContext) -> list[Event]:
    """Apply what was decided, in that order; then newborns learn what their users accepted.

    Raises:
        RunError: the strategy decided something else.
    """
    decisions = as_list(strategies.called(context.strategy), decisions, Decision)
    apply_context = ApplyContext(
        context.state,
        context.store,
        context.host.layout,
        context.prices,
        context.draw,
        context.host.norms,
        context.rank,
        context.faults,
        hold_trial=partial(hold_trial, context=context),
    )
    events, initial_steps = list[Event](), dict[OrganelleId, int]()
    for decision in decisions:
        own = decision.apply(apply_context)
        events += own
        if isinstance(decision, Found) and decision.initial_steps:
            born = [event.id for event in own if isinstance(event, Born)]
            initial_steps |= dict.fromkeys(born, decision.initial_steps)
    return events + warm_newborns(initial_steps, context)


def found_population(state: EcologyState, runtime: Runtime, log: EventLog) -> None:
    """Begin generation 0: measure the exchange rate on the bare host, let an adapter learn the
    examples of a warm start, found the population."""
    context = GenerationContext(**vars(runtime), state=state, draw=Draw(state.seed, -1))
    memory_mb = context.host.memory_mb
    cells = context.tasks.cells
    probes = [context.tasks.draw(cell, 2, context.draw("calibrate", *cell)) for cell in cells]
    outcomes = act([Assignment(HOST, items, purpose="probe") for items in probes], context)
    state.mean_rollout_flops = state.spent.flops // state.spent.rows
    success = sum(outcome.accuracy for outcome in outcomes) / len(outcomes)
    state.success = {cell_name(cell): success for cell in cells}
    events = settle(outcomes, [], context) + warm_start(context)
    events += execute(context.strategy.found(context.strategy_context), context)
    events += part_faults(context) + _shrinking(memory_mb, context)
    state.next_seq = log.emit(state.next_seq, *events)


def _shrinking(memory_mb: float, context: GenerationContext) -> list[Event]:
    """Return the event of batches that became smaller, since one did not fit into memory: smaller
    ones round differently."""
    is_shrunk = context.host.memory_mb < memory_mb
    return [BatchShrunk(context.state.generation, context.host.memory_mb)] if is_shrunk else []


def _summary(
    state: EcologyState, outcomes: Sequence[Outcome], events: Sequence[Event], before: Cost
) -> GenerationEnded:
    practice = [outcome for outcome in outcomes if outcome.assignment.is_practice]
    verdicts = [verdict for outcome in practice for verdict in outcome.verdicts]
    return GenerationEnded(
        state.generation,
        population=len(state.population),
        births=sum(isinstance(event, Born) for event in events),
        deaths=sum(isinstance(event, Retired) for event in events),
        accuracy=sum(verdicts) / len(verdicts) if verdicts else None,
        coverage=len(state.archive.elites),
        train_flops=state.spent.flops,
        energy_total=sum(state.ledger.balances.values()),
        rows=state.spent.rows - before.rows,
        calls=state.spent.calls - before.calls,
    )
