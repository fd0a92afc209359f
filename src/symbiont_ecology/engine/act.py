"""Acting and judging: all trials of a generation as one batched call per wave of slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from symbiont_ecology.ecology import HOST, EcologyState, Outcome, Trial
from symbiont_ecology.economics import Cost, executed_flops, rollout_flops
from symbiont_ecology.engine.world import World
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import HOST_SLOT, Item, OrganelleId, Rollouts, Row

NOTHING = Rollouts((), *(np.zeros(0, np.int64),) * 4)


def act(trials: Sequence[Trial], state: EcologyState, world: World, draw: Draw) -> list[Outcome]:
    """Rolls out and judges every trial, charges the budget; outcomes in the order of the trials."""
    outcomes: dict[int, Outcome] = {}
    for slots in waves({trial.who for trial in trials}, world.host.slots):
        for who, slot in slots.items():
            if who != HOST:
                world.host.place(slot, world.store.weights(state.genome(who).weights))
        chosen = [index for index, trial in enumerate(trials) if trial.who in slots]
        rows, draws = [], []
        for index in chosen:
            for row, generator in _rows(trials[index], slots[trials[index].who], world, draw):
                rows.append(row)
                draws.append(generator)
        rollouts = NOTHING
        if rows:  # who only reads gold answers asks for no rollout
            rollouts = world.host.rollout(rows, draws, world.practice)
            state.spent += Cost(calls=1)
        start = 0
        for index in chosen:
            stop = start + len(trials[index].items) * trials[index].samples
            outcomes[index] = _judged(trials[index], rollouts, range(start, stop), state, world)
            state.spent += outcomes[index].cost
            start = stop
    return [outcomes[index] for index in range(len(trials))]


def waves(everyone: set[OrganelleId], slots: int) -> Iterator[dict[OrganelleId, int]]:
    """Slots for everyone, in waves of at most ``slots`` organelles, by sorted id. The host needs no slot."""
    organelles = sorted(everyone - {HOST})
    for start in range(0, max(len(organelles), 1), slots):
        wave = {who: slot for slot, who in enumerate(organelles[start : start + slots])}
        if start == 0 and HOST in everyone:
            wave[HOST] = HOST_SLOT
        if wave:
            yield wave


def _rows(
    trial: Trial, slot: int, world: World, draw: Draw
) -> Iterator[tuple[Row, np.random.Generator | None]]:
    """Practice explores; whatever else is asked is answered as it would be in use, by the best answer."""
    tasks, explores = world.scene.tasks, trial.purpose == "practice"
    for index, item in enumerate(trial.items):
        row = Row(tasks.prompt(item), slot, tasks.reply_limit(item))
        for sample in range(trial.samples):
            yield row, draw("rollout", trial.who, trial.purpose, item.id, index, sample) if explores else None


def _judged(trial: Trial, rollouts: Rollouts, places: range, state: EcologyState, world: World) -> Outcome:
    asked: list[Item] = [item for item in trial.items for _ in range(trial.samples)]
    texts = tuple(rollouts.texts[place] for place in places)
    verdicts = tuple(world.scene.tasks.verify(item, text) for item, text in zip(asked, texts, strict=True))
    rank = 0 if trial.who == HOST else state.genome(trial.who).rank
    cost = _cost(rollouts, slice(places.start, places.stop), world, rank)
    completions = tuple(rollouts.completion(place) for place in places)
    return Outcome(trial, texts, completions, verdicts, cost, rollouts.traces, places.start)


def _cost(rollouts: Rollouts, places: slice, world: World, rank: int) -> Cost:
    """What some rollouts took."""
    shape, parameters = world.host.shape, world.lora_parameters(rank)
    read, written = rollouts.prompt_lengths[places].tolist(), rollouts.lengths[places].tolist()
    useful = executed = sum(rollout_flops(shape, parameters, *row) for row in zip(read, written, strict=True))
    if rollouts.read is not None and rollouts.fed is not None:
        really = zip(read, rollouts.read[places].tolist(), rollouts.fed[places].tolist(), strict=True)
        executed = sum(executed_flops(shape, parameters, *row) for row in really)
    return Cost(sum(read), sum(written), rows=len(read), flops=useful, executed=executed)
