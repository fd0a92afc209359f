"""One generation, top to bottom: retire, ask, act, learn, settle, remember, tell.

This is artificial life on a language model. Organelles are LoRA adapters on one frozen host. They pay
energy to answer questions, earn energy when a verifier accepts the answer, learn from the verdicts, breed
when they are rich and die when they are broke. All of them act in one batched call and learn in another.
"""

from __future__ import annotations

from collections.abc import Iterable

from symbiont_ecology.ecology import HOST, Decision, EcologyState, Outcome, Trial, cell_name
from symbiont_ecology.ecology.population import bankrupt, execute, struck
from symbiont_ecology.engine.act import act
from symbiont_ecology.engine.learn import learn
from symbiont_ecology.engine.ration import stage, within_budget
from symbiont_ecology.engine.remember import grow, remember
from symbiont_ecology.engine.settle import settle
from symbiont_ecology.engine.world import World
from symbiont_ecology.events import BatchShrunk, Born, Event, EventLog, GenerationEnded, Retired
from symbiont_ecology.rng import Draw


def run_generation(state: EcologyState, world: World, log: EventLog) -> GenerationEnded:
    """Advances the state by one generation, writes its events and returns the last of them."""
    draw, before = Draw(state.seed, state.generation), state.budget.train
    # What counts as right may change, and what it pays; nobody is told.
    world = world.at(*stage(state, world.moments), state.generation)
    scene = world.scene
    memory_mb = world.host.memory_mb

    def carry_out(decisions: Iterable[Decision]) -> list[Event]:
        """Does what was decided."""
        done = (execute(d, state, world.store, world.host.layout, scene.prices, draw) for d in decisions)
        return [event for events in done for event in events]

    # Retire first: the dead must not breed, and the newborn need their slots.
    events = carry_out(bankrupt(state, scene.prices) if world.strategy.is_mortal else [])
    events += carry_out(struck(state, world.climate, draw))

    # Ask: the strategy says who faces which questions, within what each can pay and the run may spend.
    trials = within_budget(world.strategy.ask(state, scene, draw), state, world, draw)

    # Act: the population is the batch. Verifiers have the only say on what was right.
    outcomes = act(trials, state, world, draw)

    # Learn: one gradient step for everyone. The new weights wait: the old ones earned the verdicts.
    updates = learn(outcomes, state, world, draw)
    if world.host.memory_mb < memory_mb:
        events.append(BatchShrunk(state.generation, world.host.memory_mb))

    # Settle: verified answers are energy, compute costs energy, and nothing else moves any.
    events += settle(state, outcomes, updates, world)

    # Remember: beliefs, prices and the archive, which keeps the weights that acted. Then grow.
    events += remember(state, outcomes, updates, scene.prices, scene.allocator)
    events += grow(state, updates)

    # Tell: the strategy sees what came of it, and decides who breeds and who is founded anew.
    events += carry_out(world.strategy.tell(state, outcomes, scene, draw))

    summary = _summary(state, outcomes, events, before.rows, before.calls)
    state.next_seq = log.emit(state.next_seq, *events, summary)
    state.generation += 1
    return summary


def found(state: EcologyState, world: World, log: EventLog) -> None:
    """Generation 0 begins: measures the exchange rate on the bare host and founds the population."""
    scene, draw = world.scene, Draw(state.seed, -1)
    probes = [scene.tasks.draw(cell, 2, draw("calibrate", *cell)) for cell in scene.tasks.cells]
    outcomes = act([Trial(HOST, items, purpose="probe") for items in probes], state, world, draw)
    state.mean_rollout_flops = state.budget.train.flops // state.budget.train.rows
    success = sum(outcome.mean_reward for outcome in outcomes) / len(outcomes)
    state.success = {cell_name(cell): success for cell in scene.tasks.cells}
    decisions = world.strategy.found(scene)
    events = settle(state, outcomes, [], world)
    for decision in decisions:
        events += execute(decision, state, world.store, world.host.layout, scene.prices, draw)
    state.next_seq = log.emit(state.next_seq, *events)


def _summary(
    state: EcologyState, outcomes: list[Outcome], events: list[Event], rows: int, calls: int
) -> GenerationEnded:
    verdicts = [v for o in outcomes if o.trial.purpose == "practice" for v in o.rewards]
    train = state.budget.train
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
