"""One generation, top to bottom: retire, ask, act, learn, settle, remember, grow, tell.

This is artificial life on a language model. An organelle is a LoRA adapter on one frozen host, with
an account of energy. An answer costs its FLOPs; one that a verifier accepts earns the price of its
cell (a task family at a depth), which falls as the cell gets easy. Weights and step size are
heredity, mutated copies are offspring, debt is death. All organelles answer in one batched call,
and learn in another.
"""

from __future__ import annotations

from collections.abc import Iterable

from symbiont_ecology.ecology import HOST, Assignment, Decision, EcologyState, Outcome, cell_name
from symbiont_ecology.ecology.population import bankrupt, endowed, execute, struck
from symbiont_ecology.engine.act import act
from symbiont_ecology.engine.budget import affordable_assignments, budget_phase
from symbiont_ecology.engine.learn import learn
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.engine.settle import settle
from symbiont_ecology.engine.update_posteriors import install, update_posteriors
from symbiont_ecology.events import BatchShrunk, Born, Event, EventLog, GenerationEnded, Retired
from symbiont_ecology.rng import Draw


def run_generation(state: EcologyState, world: Runtime, log: EventLog) -> GenerationEnded:
    """Advances the state by one generation, writes its events and returns the last of them."""
    draw, before = Draw(state.seed, state.generation), state.spent
    # What counts as right may have changed, and what it pays: organelles see it in their verdicts
    # alone.
    world = world.at(*budget_phase(state, world.milestones), state.generation)
    scene, memory_mb = world.scene, world.host.memory_mb

    # Retire first: the dead must not breed, and the newborn need their slots.
    events = execute_all(
        bankrupt(state, scene.prices) if world.strategy.is_mortal else [], state, world, draw
    )
    events += execute_all(struck(state, world.climate, draw), state, world, draw)

    # Ask: the strategy says who faces which questions, within what each can pay and the run may
    # spend.
    trials = affordable_assignments(world.strategy.ask(state, scene, draw), state, world, draw)

    # Act: the population is the batch. Verifiers have the only say on what was right.
    outcomes = act(trials, state, world, draw)

    # Learn: one step for everyone who practised. The new weights wait: the old ones earned the
    # verdicts.
    updates = learn(outcomes, state, world, draw)
    if world.host.memory_mb < memory_mb:
        events.append(BatchShrunk(state.generation, world.host.memory_mb))

    # Settle: verified answers are energy, and compute, rent and tickets cost it.
    events += settle(state, outcomes, updates, world)

    # Remember: beliefs, prices and the archive, which knows the weights that acted.
    events += update_posteriors(state, outcomes, updates, scene.prices, scene.allocator)

    # Grow: what was learned takes the place of what acted.
    events += install(state, updates)

    # Tell: the strategy sees what came of it and decides, in an ecology by its mechanisms: who
    # breeds, who is founded anew, who tries to be leaner, whether the world has changed
    # (strategies/mechanisms).
    events += execute_all(world.strategy.tell(state, outcomes, scene, draw), state, world, draw)

    summary = _summary(state, outcomes, events, before.rows, before.calls)
    state.next_seq = log.emit(state.next_seq, *events, summary)
    state.generation += 1
    return summary


def execute_all(
    decisions: Iterable[Decision], state: EcologyState, world: Runtime, draw: Draw
) -> list[Event]:
    """Does what was decided, in that order."""
    store, layout, prices = world.store, world.host.layout, world.scene.prices
    if hasattr(world.plasticity, "rules"):
        decisions = endowed(list(decisions), draw("rules"))
    return [
        event for one in decisions for event in execute(one, state, store, layout, prices, draw)
    ]


def found_population(state: EcologyState, world: Runtime, log: EventLog) -> None:
    """Generation 0 begins: measures the exchange rate on the bare host and founds the
    population."""
    scene, draw = world.scene, Draw(state.seed, -1)
    probes = [scene.tasks.draw(cell, 2, draw("calibrate", *cell)) for cell in scene.tasks.cells]
    outcomes = act(
        [Assignment(HOST, items, purpose="probe") for items in probes], state, world, draw
    )
    state.mean_rollout_flops = state.spent.flops // state.spent.rows
    success = sum(outcome.accuracy for outcome in outcomes) / len(outcomes)
    state.success = {cell_name(cell): success for cell in scene.tasks.cells}
    events = settle(state, outcomes, [], world)
    events += execute_all(world.strategy.found(scene), state, world, draw)
    state.next_seq = log.emit(state.next_seq, *events)


def _summary(
    state: EcologyState, outcomes: list[Outcome], events: list[Event], rows: int, calls: int
) -> GenerationEnded:
    verdicts = [v for o in outcomes if o.trial.purpose == "practice" for v in o.verdicts]
    train = state.spent
    return GenerationEnded(
        state.generation,
        len(state.population),
        sum(isinstance(event, Born) for event in events),
        sum(isinstance(event, Retired) for event in events),
        sum(verdicts) / len(verdicts) if verdicts else 0.0,
        state.archive.coverage,
        train.flops,
        sum(state.ledger.balances.values()),
        train.rows - rows,
        train.calls - calls,
    )
