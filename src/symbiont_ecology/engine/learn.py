"""Learning: the plasticity rule turns a generation into lessons, and one batched step teaches everyone.

The step is a backward pass through the host; or, under a rule that perturbs, none at all: reward and trace
are all that it takes.
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
from symbiont_ecology.engine.climb import climb
from symbiont_ecology.engine.ration import affordable
from symbiont_ecology.engine.world import World
from symbiont_ecology.plasticity import Lived, Teaching
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef, LearningBatch, LearningStatistics, Lesson, OrganelleId
from symbiont_ecology.weights import AdapterWeights, Memory
from symbiont_ecology.weights.traces import Trace, awoken, is_deaf


@dataclass(frozen=True)
class Update:
    """What a generation did to one organelle. ``tokens`` are those of its lessons' completions; ``is_sick``
    says that a loss or gradient was not finite."""

    who: OrganelleId
    weights: BlobRef
    memory: BlobRef
    cost: Cost = field(default_factory=Cost)
    flops: Mapping[str, int] = field(default_factory=dict)
    """Of the cost, by cell name."""
    lessons: int = 0
    tokens: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    is_sick: bool = False


def learn(outcomes: Sequence[Outcome], state: EcologyState, world: World, draw: Draw) -> list[Update]:
    """One update for everyone who practised. Nothing is installed yet: the old weights acted."""
    practised: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            practised[outcome.trial.who].append(outcome)
    slots_by_wave = list(waves(set(practised), world.host.slots))
    pupils = {
        who: _pupil(who, slot, practised[who], state, world, draw)
        for slots in slots_by_wave
        for who, slot in slots.items()
    }
    taught = [one for pupil in pupils.values() for one in pupil.lessons]
    taught = _within_budget(taught, state, world, draw)
    return [u for slots in slots_by_wave for u in _learn_wave(slots, pupils, taught, state, world)]


@dataclass(frozen=True)
class _Taught:
    """A lesson, whose it is, the cell that it is about, and what it takes alone."""

    who: OrganelleId
    cell: str
    lesson: Lesson
    cost: Cost
    trace: Trace | None


@dataclass(frozen=True)
class _Pupil:
    """Who is to learn, with what its rule would teach it if the budget allowed."""

    weights: AdapterWeights
    memory: Memory
    rate: float
    lessons: Sequence[_Taught] = ()


def step_size(traits: Mapping[str, float], updates: int) -> float:
    """Adam's step size after so many updates: it falls with their root, from ``aging`` on.

    The young learn fast, the old keep what they know. Who inherits a memory is as old as its parent.
    """
    aging = traits.get("aging", 0.0)
    return traits.get("learning_rate", 0.0) / math.sqrt(1 + updates / aging if aging else 1)


def _pupil(
    who: OrganelleId, slot: int, outcomes: list[Outcome], state: EcologyState, world: World, draw: Draw
) -> _Pupil:
    genome = state.population[who].genome
    weights, memory = world.store.weights(genome.weights), world.store.memory(state.population[who].memory)
    rate = step_size(genome.traits, memory.step)
    if not rate:  # who cannot learn (the frozen control) pays for no lesson
        return _Pupil(weights, memory, rate)
    teachings, notes = world.plasticity.learn(_lived(outcomes, memory.notes, genome.traits, world))
    memory = replace(memory, notes=notes)
    if world.practice.perturbation and is_deaf(weights):  # its traces say nothing
        return _Pupil(awoken(weights, draw("wake", who)), memory, rate)
    return _Pupil(weights, memory, rate, list(_taught(teachings, who, slot, genome.rank, world)))


def _learn_wave(
    slots: Mapping[OrganelleId, int],
    pupils: Mapping[OrganelleId, _Pupil],
    taught: Sequence[_Taught],
    state: EcologyState,
    world: World,
) -> list[Update]:
    weights = {slot: pupils[who].weights for who, slot in slots.items()}
    memory = {slot: pupils[who].memory for who, slot in slots.items()}
    rates = {slot: pupils[who].rate for who, slot in slots.items()}
    taught = [one for one in taught if one.who in slots]
    statistics = LearningStatistics()
    if taught:
        batch = LearningBatch(tuple(one.lesson for one in taught), rates)
        if world.practice.perturbation:
            traces = [one.trace for one in taught if one.trace is not None]
            weights, memory, statistics = climb(batch, traces, weights, memory)
        else:
            weights, memory, statistics = world.host.learn(batch, weights, memory)
            state.spent += Cost(calls=1)
    return [
        _update(
            Update(who, world.store.put_weights(weights[slot]), world.store.put_memory(memory[slot])),
            slot,
            [one for one in taught if one.who == who],
            statistics,
            state,
            world,
        )
        for who, slot in slots.items()
    ]


def _update(
    update: Update,
    slot: int,
    lessons: Sequence[_Taught],
    statistics: LearningStatistics,
    state: EcologyState,
    world: World,
) -> Update:
    """What the step did to one learner, who pays for it."""
    cost = _together(lessons, world.lora_parameters(state.genome(update.who).rank), world)
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


def _within_budget(taught: Sequence[_Taught], state: EcologyState, world: World, draw: Draw) -> list[_Taught]:
    """The lessons that what is left pays for."""
    costs, left = [one.cost.flops for one in taught], world.until - state.spent.flops
    chosen = affordable(costs, left, draw, "lessons")
    if costs and left > 0 and not chosen:  # who spent nothing would never get to the end
        chosen = [int(np.argmin(costs))]
    return [taught[index] for index in chosen]


def _taught(
    teachings: Sequence[Teaching], who: OrganelleId, slot: int, rank: int, world: World
) -> Iterator[_Taught]:
    """The lessons of one learner: forward and backward over prompt and completion of each, or its trace."""
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
        yield _Taught(who, cell_name(one.item.cell), lesson, cost, one.trace)


def _together(taught: Sequence[_Taught], parameters: int, world: World) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, seen = Cost(), set[str]()
    for one in taught:
        total += one.cost
        if one.lesson.prompt in seen:
            total += Cost(executed=-learning_flops(world.host.shape, parameters, one.cost.tokens_in, 0))
        seen.add(one.lesson.prompt)
    return total


def _lived(
    outcomes: list[Outcome], notes: Mapping[str, float], traits: Mapping[str, float], world: World
) -> Lived:
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
    return Lived(tuple(outcomes), rewards, notes, golds, traits)
