"""One generation: retire, ask, act, learn, remember, settle, update, install, tell.

This is artificial life on a language model. An organelle is a LoRA adapter on one frozen host, with
an account of energy. An answer costs its FLOPs. An answer that a verifier accepts earns the price
of its cell (a task family at a depth), which falls as the cell gets easy. Weights and learning rate
are heredity, mutated copies are offspring, debt is death. All organelles answer in one batched
call, and learn in another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from symbiont_ecology.ecology import HOST, Assignment, Decision, EcologyState, Outcome
from symbiont_ecology.ecology.births import with_rule_traits
from symbiont_ecology.ecology.deaths import retire_by_catastrophe, retire_the_bankrupt
from symbiont_ecology.ecology.population import Materials, carry_out
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import act
from symbiont_ecology.engine.budget import affordable_assignments, budget_phase
from symbiont_ecology.engine.faults import faults_of
from symbiont_ecology.engine.feed import feed
from symbiont_ecology.engine.learn import learn
from symbiont_ecology.engine.remember import remember
from symbiont_ecology.engine.runtime import Runtime, Turn
from symbiont_ecology.engine.settle import install, settle, update_posteriors
from symbiont_ecology.engine.transcribe import transcribe
from symbiont_ecology.engine.warm import warm_start
from symbiont_ecology.event_log import EventLog
from symbiont_ecology.events import BatchShrunk, Born, Event, GenerationEnded, Retired
from symbiont_ecology.fence import as_list
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import strategies
from symbiont_ecology.types import cell_name


def run_generation(state: EcologyState, runtime: Runtime, log: EventLog) -> GenerationEnded:
    """Advances the state by one generation, writes its events and returns the last of them."""
    # What counts as right may have changed, and what it pays: organelles see it in their verdicts.
    turn = runtime.at(state, *budget_phase(state, runtime.milestones))
    strategy, before, memory_mb = turn.strategy, state.spent, turn.host.memory_mb

    # Retire first: the dead must not breed, and the newborn need their slots.
    events = retire_the_bankrupt(state, turn.prices) if strategy.is_mortal else []
    events += retire_by_catastrophe(state, turn.climate, turn.draw)
    turn.passed("retire")

    # Ask: the strategy says who faces which items, within what each can pay and the run may spend.
    assignments = affordable_assignments(strategy.ask(turn.context), turn)
    turn.passed("ask")

    # Act: the population is the batch. Verifiers have the only say on what was right.
    outcomes = act(assignments, turn)
    turn.passed("act")

    # Learn: one step for everyone who practised. The new weights wait: the old ones earned the
    # verdicts.
    updates = learn(outcomes, turn)
    turn.passed("learn")

    # Remember: habitats keep the last answers that they were given, and what they thought of them.
    remember(outcomes, turn)

    # Write down what was replied, and at which price: for people, nothing here reads it again.
    turn.transcripts.write(transcribe(outcomes, turn))
    turn.passed("remember")

    # Settle: verified answers are energy; compute, rent and tickets cost it.
    events += settle(outcomes, updates, turn)

    # Update: posteriors, prices and the archive, which keeps the weights that acted.
    events += update_posteriors(outcomes, updates, turn)

    # Install: what was learned takes the place of what acted.
    events += install(updates, state)
    turn.passed("settle")

    # Tell: the strategy sees the outcomes and decides. In an ecology its mechanisms do: who breeds,
    # who is founded anew, who tries to be leaner, whether the world has changed.
    events += execute(strategy.tell(replace(turn.context, outcomes=outcomes)), turn)
    turn.passed("tell")

    # Parts that others wrote may fail, and are named. One that does nothing else ends the run.
    events += faults_of(turn) + _shrinking(memory_mb, turn)

    summary = _summary(state, outcomes, events, before)
    state.next_seq = log.emit(state.next_seq, *events, summary)
    state.generation += 1
    return summary


def execute(decisions: Iterable[Decision], turn: Turn) -> list[Event]:
    """Carries out what was decided, in that order; then newborns have their first food.

    Raises:
        RunError: the strategy decided something else.
    """
    decisions = as_list(strategies.called(turn.strategy), decisions, Decision)
    materials = Materials(
        turn.state,
        turn.store,
        turn.host.layout,
        turn.prices,
        turn.draw,
        turn.host.norms,
        turn.rank,
        turn.faults,
    )
    if turn.learning_rule.rule_count > 1:
        decisions = with_rule_traits(decisions, turn.draw("rules"))
    return carry_out(decisions, materials) + feed(materials.meals, turn)


def found_population(state: EcologyState, runtime: Runtime, log: EventLog) -> None:
    """Generation 0 begins: measures the exchange rate on the bare host, lets an adapter learn the
    examples of a warm start, founds the population."""
    turn = Turn(**vars(runtime), state=state, draw=Draw(state.seed, -1))
    memory_mb = turn.host.memory_mb
    cells = turn.tasks.cells
    probes = [turn.tasks.draw(cell, 2, turn.draw("calibrate", *cell)) for cell in cells]
    outcomes = act([Assignment(HOST, items, purpose="probe") for items in probes], turn)
    state.mean_rollout_flops = state.spent.flops // state.spent.rows
    success = sum(outcome.accuracy for outcome in outcomes) / len(outcomes)
    state.success = {cell_name(cell): success for cell in cells}
    events = settle(outcomes, [], turn) + warm_start(turn)
    events += execute(turn.strategy.found(turn.context), turn)
    events += faults_of(turn) + _shrinking(memory_mb, turn)
    state.next_seq = log.emit(state.next_seq, *events)


def _shrinking(memory_mb: float, turn: Turn) -> list[Event]:
    """Whether batches became smaller, since one did not fit into memory: smaller ones round
    differently."""
    is_shrunk = turn.host.memory_mb < memory_mb
    return [BatchShrunk(turn.state.generation, turn.host.memory_mb)] if is_shrunk else []


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
        coverage=state.archive.coverage,
        train_flops=state.spent.flops,
        energy_total=sum(state.ledger.balances.values()),
        rows=state.spent.rows - before.rows,
        calls=state.spent.calls - before.calls,
    )
