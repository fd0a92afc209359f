"""Acting and judging: all trials of a generation as one batched call per wave of slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from symbiont_ecology.ecology import HOST, Assignment, EcologyState, Outcome
from symbiont_ecology.economics import Cost, executed_flops, rollout_flops
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import HOST_SLOT, Completions, Item, OrganelleId, Request

NOTHING = Completions((), *(np.zeros(0, np.int64),) * 4)


def act(
    trials: Sequence[Assignment], state: EcologyState, world: Runtime, draw: Draw
) -> list[Outcome]:
    """Rolls out and judges every trial, charges the budget; outcomes in the order of the trials."""
    outcomes: dict[int, Outcome] = {}
    for slots in waves({trial.organelle_id for trial in trials}, world.host.slots):
        for organelle_id, slot in slots.items():
            if organelle_id != HOST:
                world.host.place(slot, world.store.weights(state.genome(organelle_id).weights))
        chosen = [index for index, trial in enumerate(trials) if trial.organelle_id in slots]
        rows, draws = [], []
        for index in chosen:
            for row, generator in _rows(
                trials[index], slots[trials[index].organelle_id], world, draw
            ):
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
    """Slots for everyone, in waves of at most ``slots`` organelles, by sorted id. The host needs no
    slot."""
    organelles = sorted(everyone - {HOST})
    for start in range(0, max(len(organelles), 1), slots):
        wave = {
            organelle_id: slot
            for slot, organelle_id in enumerate(organelles[start : start + slots])
        }
        if start == 0 and HOST in everyone:
            wave[HOST] = HOST_SLOT
        if wave:
            yield wave


def _rows(
    trial: Assignment, slot: int, world: Runtime, draw: Draw
) -> Iterator[tuple[Request, np.random.Generator | None]]:
    """Practice explores; whatever else is asked is answered as it would be in use, by the best
    answer."""
    tasks, explores = world.scene.tasks, trial.purpose == "practice"
    for index, item in enumerate(trial.items):
        row = Request(tasks.prompt(item), slot, tasks.reply_limit(item))
        for sample in range(trial.samples):
            yield (
                row,
                draw("rollout", trial.organelle_id, trial.purpose, item.id, index, sample)
                if explores
                else None,
            )


def _judged(
    trial: Assignment, rollouts: Completions, places: range, state: EcologyState, world: Runtime
) -> Outcome:
    asked: list[Item] = [item for item in trial.items for _ in range(trial.samples)]
    texts = tuple(rollouts.texts[place] for place in places)
    verdicts = tuple(
        world.scene.tasks.verify(item, text) for item, text in zip(asked, texts, strict=True)
    )
    rank = 0 if trial.organelle_id == HOST else state.genome(trial.organelle_id).rank
    cost = _cost(rollouts, slice(places.start, places.stop), world, rank)
    completions = tuple(rollouts.completion(place) for place in places)
    return Outcome(trial, texts, completions, verdicts, cost, rollouts.traces, places.start)


def _cost(rollouts: Completions, places: slice, world: Runtime, rank: int) -> Cost:
    """What some rollouts took."""
    shape, parameters = world.host.shape, world.lora_parameters(rank)
    read, written = rollouts.prompt_lengths[places].tolist(), rollouts.lengths[places].tolist()
    useful = executed = sum(
        rollout_flops(shape, parameters, *row) for row in zip(read, written, strict=True)
    )
    if rollouts.read is not None and rollouts.fed is not None:
        really = zip(
            read, rollouts.read[places].tolist(), rollouts.fed[places].tolist(), strict=True
        )
        executed = sum(executed_flops(shape, parameters, *row) for row in really)
    return Cost(sum(read), sum(written), rows=len(read), flops=useful, executed=executed)
