"""Learning: the plasticity rule turns a generation into lessons, one backward pass teaches everyone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.economics import Cost, learning_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.ration import affordable
from symbiont_ecology.engine.world import World
from symbiont_ecology.plasticity import Lived, Teaching
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef, LearningBatch, LearningStatistics, Lesson, OrganelleId


@dataclass(frozen=True)
class Update:
    """What a generation did to one organelle. ``tokens`` are those of its lessons' completions; ``is_sick``
    says that a loss or gradient was not finite."""

    who: OrganelleId
    weights: BlobRef
    memory: BlobRef
    cost: Cost
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
    updates = []
    for slots in waves(set(practised), world.host.slots):
        updates += _learn_wave(slots, practised, state, world, draw)
    return updates


@dataclass(frozen=True)
class _Taught:
    """A lesson, whose it is, the cell that it is about, and what it takes alone."""

    who: OrganelleId
    cell: str
    lesson: Lesson
    cost: Cost


def _learn_wave(
    slots: dict[OrganelleId, int],
    practised: dict[OrganelleId, list[Outcome]],
    state: EcologyState,
    world: World,
    draw: Draw,
) -> list[Update]:
    weights, memory, rates, taught = {}, {}, {}, list[_Taught]()
    for who, slot in slots.items():
        genome = state.population[who].genome
        weights[slot] = world.store.weights(genome.weights)
        memory[slot] = world.store.memory(state.population[who].memory)
        rates[slot] = genome.traits.get("learning_rate", 0.0)
        if rates[slot]:  # who cannot learn (the frozen control) pays for no lesson
            teachings, notes = world.plasticity.learn(_lived(practised[who], memory[slot].notes, world))
            memory[slot] = replace(memory[slot], notes=notes)
            taught += _taught(teachings, who, slot, genome.rank, world)
    costs, left = [one.cost.flops for one in taught], world.until - state.budget.train.flops
    chosen = affordable(costs, left, draw("lessons", *slots))
    if costs and left > 0 and not chosen:  # who spent nothing would never get to the end
        chosen = [int(np.argmin(costs))]
    taught = [taught[index] for index in chosen]
    statistics = LearningStatistics()
    if taught:
        batch = LearningBatch(tuple(one.lesson for one in taught), rates)
        weights, memory, statistics = world.host.learn(batch, weights, memory)
        state.budget.charge("train", Cost(calls=1))
    lessons: dict[OrganelleId, list[_Taught]] = defaultdict(list)
    for one in taught:
        lessons[one.who].append(one)
    updates = []
    for who, slot in slots.items():
        own = lessons[who]
        is_sick = slot in statistics.sick
        cost = _together(own, world.lora_parameters(state.population[who].genome.rank), world)
        state.budget.charge("train", cost)
        flops = Counter[str]()
        for one in own:
            flops[one.cell] += one.cost.flops
        updates.append(
            Update(
                who,
                world.store.put_weights(weights[slot]),
                world.store.put_memory(memory[slot]),
                cost,
                flops,
                len(own),
                statistics.tokens.get(slot, 0),
                0.0 if is_sick else statistics.loss.get(slot, 0.0),
                0.0 if is_sick else statistics.gradient_norm.get(slot, 0.0),
                is_sick,
            )
        )
    return updates


def _taught(
    teachings: Sequence[Teaching], who: OrganelleId, slot: int, rank: int, world: World
) -> Iterator[_Taught]:
    """The lessons of one learner: forward and backward over prompt and completion of each."""
    asked = [world.scene.tasks.prompt(one.item) for one in teachings]
    prompts = sorted(set(asked))
    read = dict(zip(prompts, map(len, world.host.encode(prompts)), strict=True)) if prompts else {}
    parameters = world.lora_parameters(rank)
    for one, prompt in zip(teachings, asked, strict=True):
        written = len(one.completion)
        flops = learning_flops(world.host.shape, parameters, read[prompt], written)
        lesson = Lesson(prompt, one.completion, slot, one.weight)
        cost = Cost(read[prompt], written, flops=flops, executed=flops)
        yield _Taught(who, cell_name(one.item.cell), lesson, cost)


def _together(taught: Sequence[_Taught], parameters: int, world: World) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, seen = Cost(updates=int(bool(taught))), set[str]()
    for one in taught:
        total += one.cost
        if one.lesson.prompt in seen:
            total += Cost(executed=-learning_flops(world.host.shape, parameters, one.cost.tokens_in, 0))
        seen.add(one.lesson.prompt)
    return total


def _lived(outcomes: list[Outcome], notes: Mapping[str, float], world: World) -> Lived:
    tasks = world.scene.tasks
    rewards = tuple(
        tuple(
            world.reward(tasks.families[item.family], item, outcome.texts[place])
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
    return Lived(tuple(outcomes), rewards, notes, golds)
