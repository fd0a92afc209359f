"""Learning: the plasticity rule turns a generation into lessons, one backward pass teaches everyone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.economics import Cost, learning_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.world import World
from symbiont_ecology.plasticity import Lived, Teaching
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


def learn(outcomes: Sequence[Outcome], state: EcologyState, world: World) -> list[Update]:
    """One update for everyone who practised. Nothing is installed yet: the old weights acted."""
    practised: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            practised[outcome.trial.who].append(outcome)
    updates = []
    for slots in waves(set(practised), world.host.slots):
        updates += _learn_wave(slots, practised, state, world)
    return updates


def _learn_wave(
    slots: dict[OrganelleId, int],
    practised: dict[OrganelleId, list[Outcome]],
    state: EcologyState,
    world: World,
) -> list[Update]:
    weights, memory, lessons, rates, costs, by_cell = {}, {}, [], {}, {}, {}
    for who, slot in slots.items():
        genome = state.population[who].genome
        weights[slot] = world.store.weights(genome.weights)
        memory[slot] = world.store.memory(state.population[who].memory)
        rates[slot] = genome.traits.get("learning_rate", 0.0)
        teachings: Sequence[Teaching] = ()
        if rates[slot]:  # who cannot learn (the frozen control) pays for no lesson
            teachings, notes = world.plasticity.learn(_lived(practised[who], memory[slot].notes, world))
            memory[slot] = replace(memory[slot], notes=notes)
        taught = [
            Lesson(world.scene.tasks.prompt(one.item), one.completion, slot, one.weight) for one in teachings
        ]
        by_cell[who] = _costs(teachings, taught, genome.rank, world)
        costs[who] = sum(by_cell[who].values(), Cost(updates=int(bool(taught))))
        lessons += taught
    statistics = LearningStatistics()
    if lessons:
        weights, memory, statistics = world.host.learn(LearningBatch(tuple(lessons), rates), weights, memory)
        state.budget.charge("train", Cost(calls=1))
    updates = []
    for who, slot in slots.items():
        count = sum(lesson.slot == slot for lesson in lessons)
        is_sick = slot in statistics.sick
        state.budget.charge("train", costs[who])
        updates.append(
            Update(
                who,
                world.store.put_weights(weights[slot]),
                world.store.put_memory(memory[slot]),
                costs[who],
                {cell: cost.flops for cell, cost in by_cell[who].items()},
                count,
                statistics.tokens.get(slot, 0),
                0.0 if is_sick else statistics.loss.get(slot, 0.0),
                0.0 if is_sick else statistics.gradient_norm.get(slot, 0.0),
                is_sick,
            )
        )
    return updates


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


def _costs(
    teachings: Sequence[Teaching], lessons: Sequence[Lesson], rank: int, world: World
) -> dict[str, Cost]:
    """Useful work of one learner's lessons by cell: forward and backward over prompts and completions."""
    prompts = sorted({one.prompt for one in lessons})
    read = dict(zip(prompts, map(len, world.host.encode(prompts)), strict=True)) if prompts else {}
    shape, parameters = world.host.shape, world.lora_parameters(rank)
    found: dict[str, Cost] = {}
    seen: set[str] = set()
    for teaching, lesson in zip(teachings, lessons, strict=True):
        cell, prompt, written = cell_name(teaching.item.cell), read[lesson.prompt], len(lesson.completion)
        flops = executed = learning_flops(shape, parameters, prompt, written)
        if lesson.prompt in seen:  # it is read once for all lessons on it
            executed -= learning_flops(shape, parameters, prompt, 0)
        seen.add(lesson.prompt)
        cost = Cost(prompt, written, flops=flops, executed=executed)
        found[cell] = found.get(cell, Cost()) + cost
    return found
