"""Learning: the plasticity rule turns a generation into lessons, and one batched step teaches
everyone.

The step is a backward pass through the host; or, under a rule that perturbs, none at all: reward
and trace are all that it takes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.economics import Cost, learning_flops, tracing_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.budget import affordable
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.engine.trace_update import trace_update
from symbiont_ecology.learning import Experience, WeightedTarget
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef, LearningBatch, LearningStatistics, Lesson, OrganelleId
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import Trace, awoken, is_deaf


@dataclass(frozen=True)
class Update:
    """What a generation did to one organelle. ``tokens`` are those of its lessons' completions;
    ``is_sick`` says that a loss or gradient was not finite."""

    organelle_id: OrganelleId
    weights: BlobRef
    optimizer_state: BlobRef
    cost: Cost = field(default_factory=Cost)
    flops: Mapping[str, int] = field(default_factory=dict)
    """Of the cost, by cell name."""
    lessons: int = 0
    tokens: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    is_sick: bool = False


def learn(
    outcomes: Sequence[Outcome], state: EcologyState, world: Runtime, draw: Draw
) -> list[Update]:
    """One update for everyone who practised. Nothing is installed yet: the old weights acted."""
    practised: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            practised[outcome.trial.organelle_id].append(outcome)
    slots_by_wave = list(waves(set(practised), world.host.slots))
    pupils = {
        organelle_id: _pupil(organelle_id, slot, practised[organelle_id], state, world, draw)
        for slots in slots_by_wave
        for organelle_id, slot in slots.items()
    }
    taught = [one for pupil in pupils.values() for one in pupil.lessons]
    taught = _within_budget(taught, state, world, draw)
    return [u for slots in slots_by_wave for u in _learn_wave(slots, pupils, taught, state, world)]


@dataclass(frozen=True)
class _Taught:
    """A lesson, whose it is, the cell that it is about, and what it takes alone."""

    organelle_id: OrganelleId
    cell: str
    lesson: Lesson
    cost: Cost
    trace: Trace | None


@dataclass(frozen=True)
class _Pupil:
    """Who is to learn, with what its rule would teach it if the budget allowed."""

    weights: AdapterWeights
    optimizer_state: OptimizerState
    rate: float
    lessons: Sequence[_Taught] = ()


def step_size(traits: Mapping[str, float], updates: int) -> float:
    """Adam's step size after so many updates: it falls with their root, from ``aging`` on.

    The young learn fast, the old keep what they know. Who inherits a memory is as old as its
    parent.
    """
    aging = traits.get("aging", 0.0)
    return traits.get("learning_rate", 0.0) / math.sqrt(1 + updates / aging if aging else 1)


def _pupil(
    organelle_id: OrganelleId,
    slot: int,
    outcomes: list[Outcome],
    state: EcologyState,
    world: Runtime,
    draw: Draw,
) -> _Pupil:
    genome = state.population[organelle_id].genome
    weights, optimizer_state = (
        world.store.weights(genome.weights),
        world.store.optimizer_state(state.population[organelle_id].optimizer_state),
    )
    rate = step_size(genome.traits, optimizer_state.step)
    if not rate:  # who cannot learn (the frozen control) pays for no lesson
        return _Pupil(weights, optimizer_state, rate)
    teachings, notes = world.plasticity.learn(
        _lived(outcomes, optimizer_state.notes, genome.traits, world)
    )
    optimizer_state = replace(optimizer_state, notes=notes)
    if world.practice.perturbation and is_deaf(weights):  # its traces say nothing
        return _Pupil(awoken(weights, draw("wake", organelle_id)), optimizer_state, rate)
    return _Pupil(
        weights,
        optimizer_state,
        rate,
        list(_taught(teachings, organelle_id, slot, genome.rank, world)),
    )


def _learn_wave(
    slots: Mapping[OrganelleId, int],
    pupils: Mapping[OrganelleId, _Pupil],
    taught: Sequence[_Taught],
    state: EcologyState,
    world: Runtime,
) -> list[Update]:
    weights = {slot: pupils[organelle_id].weights for organelle_id, slot in slots.items()}
    optimizer_state = {
        slot: pupils[organelle_id].optimizer_state for organelle_id, slot in slots.items()
    }
    rates = {slot: pupils[organelle_id].rate for organelle_id, slot in slots.items()}
    taught = [one for one in taught if one.organelle_id in slots]
    statistics = LearningStatistics()
    if taught:
        batch = LearningBatch(tuple(one.lesson for one in taught), rates)
        if world.practice.perturbation:
            traces = [one.trace for one in taught if one.trace is not None]
            weights, optimizer_state, statistics = trace_update(
                batch, traces, weights, optimizer_state
            )
        else:
            weights, optimizer_state, statistics = world.host.learn(batch, weights, optimizer_state)
            state.spent += Cost(calls=1)
    return [
        _update(
            Update(
                organelle_id,
                world.store.put_weights(weights[slot]),
                world.store.put_optimizer_state(optimizer_state[slot]),
            ),
            slot,
            [one for one in taught if one.organelle_id == organelle_id],
            statistics,
            state,
            world,
        )
        for organelle_id, slot in slots.items()
    ]


def _update(
    update: Update,
    slot: int,
    lessons: Sequence[_Taught],
    statistics: LearningStatistics,
    state: EcologyState,
    world: Runtime,
) -> Update:
    """What the step did to one learner, who pays for it."""
    cost = _together(lessons, world.lora_parameters(state.genome(update.organelle_id).rank), world)
    state.spent += cost
    flops = Counter[str]()
    for one in lessons:
        flops[one.cell] += one.cost.flops
    is_sick = slot in statistics.sick
    return replace(
        update,
        cost=cost,
        flops=flops,
        lessons=len(lessons),
        tokens=statistics.tokens.get(slot, 0),
        loss=0.0 if is_sick else statistics.loss.get(slot, 0.0),
        gradient_norm=0.0 if is_sick else statistics.gradient_norm.get(slot, 0.0),
        is_sick=is_sick,
    )


def _within_budget(
    taught: Sequence[_Taught], state: EcologyState, world: Runtime, draw: Draw
) -> list[_Taught]:
    """The lessons that what is left pays for."""
    costs, left = [one.cost.flops for one in taught], world.until - state.spent.flops
    chosen = affordable(costs, left, draw, "lessons")
    if costs and left > 0 and not chosen:  # who spent nothing would never get to the end
        chosen = [int(np.argmin(costs))]
    return [taught[index] for index in chosen]


def _taught(
    teachings: Sequence[WeightedTarget],
    organelle_id: OrganelleId,
    slot: int,
    rank: int,
    world: Runtime,
) -> Iterator[_Taught]:
    """The lessons of one learner: forward and backward over prompt and completion of each, or its
    trace."""
    asked = [world.scene.tasks.prompt(one.item) for one in teachings]
    prompts = sorted(set(asked))
    read = dict(zip(prompts, map(len, world.host.encode(prompts)), strict=True)) if prompts else {}
    parameters = world.lora_parameters(rank)
    for one, prompt in zip(teachings, asked, strict=True):
        written = len(one.completion)
        lesson = Lesson(prompt, one.completion, slot, one.weight)
        if one.trace is None:
            flops = learning_flops(world.host.shape, parameters, read[prompt], written)
            cost = Cost(read[prompt], written, flops=flops, executed=flops)
        else:  # nothing is read or written again
            flops = tracing_flops(world.read_parameters(rank), written)
            cost = Cost(flops=flops, executed=flops)
        yield _Taught(organelle_id, cell_name(one.item.cell), lesson, cost, one.trace)


def _together(taught: Sequence[_Taught], parameters: int, world: Runtime) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, seen = Cost(), set[str]()
    for one in taught:
        total += one.cost
        if one.lesson.prompt in seen:
            total += Cost(
                executed=-learning_flops(world.host.shape, parameters, one.cost.tokens_in, 0)
            )
        seen.add(one.lesson.prompt)
    return total


def _lived(
    outcomes: list[Outcome], notes: Mapping[str, float], traits: Mapping[str, float], world: Runtime
) -> Experience:
    rewards = tuple(
        tuple(
            world.reward(item, outcome.texts[place], outcome.verdicts[place])
            for item, places in outcome.groups()
            for place in places
        )
        for outcome in outcomes
    )
    golds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    if world.plasticity.sees_gold:
        golds = tuple(
            tuple(world.host.encode_answers([item.answer for item in outcome.trial.items]))
            for outcome in outcomes
        )
    return Experience(tuple(outcomes), rewards, notes, golds, traits)
