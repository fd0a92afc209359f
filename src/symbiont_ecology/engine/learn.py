"""Learning: the rule turns a generation into weighted targets, and one batched step learns them.

The step is a backward pass through the host. Under a rule that perturbs there is none: reward and
trace are enough (``engine.trace_update``).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.economics import Cost, learning_flops, scoring_flops, tracing_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.budget import affordable
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.engine.trace_update import trace_update
from symbiont_ecology.learning import Experience, WeightedTarget
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import (
    HOST_SLOT,
    BlobRef,
    LearningBatch,
    LearningStatistics,
    Lesson,
    OrganelleId,
)
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import Trace, awoken, is_deaf


@dataclass(frozen=True)
class Update:
    """What a generation did to one organelle.

    ``flops`` are those of the cost by cell name; ``tokens`` are those of its lessons' answers.
    ``is_sick`` says that a loss or gradient was not finite.
    """

    organelle_id: OrganelleId
    weights: BlobRef
    optimizer_state: BlobRef
    cost: Cost = field(default_factory=Cost)
    flops: Mapping[str, int] = field(default_factory=dict)
    lessons: int = 0
    tokens: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    is_sick: bool = False


@dataclass(frozen=True)
class _PricedLesson:
    """A lesson with the cell that it is about and what it takes alone."""

    organelle_id: OrganelleId
    cell: str
    lesson: Lesson
    cost: Cost
    trace: Trace | None


@dataclass(frozen=True)
class _Learner:
    """An organelle that practised, with all lessons that its rule would give it."""

    organelle_id: OrganelleId
    rank: int
    weights: AdapterWeights
    optimizer_state: OptimizerState
    rate: float
    lessons: Sequence[_PricedLesson] = ()


def learn(
    outcomes: Sequence[Outcome], state: EcologyState, runtime: Runtime, draw: Draw
) -> list[Update]:
    """One update for everyone who practised. Nothing is installed yet: the old weights acted."""
    practice: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.assignment.purpose == "practice":
            practice[outcome.assignment.organelle_id].append(outcome)
    scoring: dict[OrganelleId, dict[str, Cost]] = {}
    if runtime.learning_rule.needs_host_log_probabilities:
        practice, scoring = _with_host_log_probabilities(practice, state, runtime)
    slots_of_waves = list(waves(set(practice), runtime.host.slots))
    learners = [
        [
            _learner(one, slot, practice[one], state=state, runtime=runtime, draw=draw)
            for one, slot in slots.items()
        ]
        for slots in slots_of_waves
    ]
    lessons = [lesson for wave in learners for one in wave for lesson in one.lessons]
    lessons = _within_budget(lessons, state, runtime, draw)
    return [
        update
        for slots, wave in zip(slots_of_waves, learners, strict=True)
        for update in _learn_wave(
            slots, wave, lessons, state=state, runtime=runtime, scoring=scoring
        )
    ]


def step_size(traits: Mapping[str, float], updates: int) -> float:
    """Adam's step size after so many updates. It falls with their root, from ``aging`` on.

    The young learn fast, the old keep what they know. A child that inherits its parent's optimiser
    state is as old as its parent.
    """
    aging = traits.get("aging", 0.0)
    return traits.get("learning_rate", 0.0) / math.sqrt(1 + updates / aging if aging else 1)


def _learner(
    organelle_id: OrganelleId,
    slot: int,
    outcomes: list[Outcome],
    *,
    state: EcologyState,
    runtime: Runtime,
    draw: Draw,
) -> _Learner:
    genome, store = state.population[organelle_id].genome, runtime.store
    optimizer_state = store.optimizer_state(state.population[organelle_id].optimizer_state)
    learner = _Learner(
        organelle_id,
        genome.rank,
        store.weights(genome.weights),
        optimizer_state,
        step_size(genome.traits, optimizer_state.step),
    )
    if not learner.rate:  # who cannot learn (the frozen control) pays for no lesson
        return learner
    targets, notes = runtime.learning_rule.targets(
        Experience(
            tuple(outcomes), optimizer_state.notes, genome.traits, _reference_ids(outcomes, runtime)
        )
    )
    learner = replace(learner, optimizer_state=replace(optimizer_state, notes=notes))
    if runtime.practice.perturbation and is_deaf(learner.weights):  # its traces say nothing
        return replace(learner, weights=awoken(learner.weights, draw("wake", organelle_id)))
    return replace(learner, lessons=list(_priced(targets, learner, slot, runtime)))


def _learn_wave(
    slots: Mapping[OrganelleId, int],
    learners: Sequence[_Learner],
    lessons: Sequence[_PricedLesson],
    *,
    state: EcologyState,
    runtime: Runtime,
    scoring: Mapping[OrganelleId, Mapping[str, Cost]],
) -> list[Update]:
    """One step of all learners that share a wave of slots.

    ``scoring`` says what the host's log-probabilities took, by learner and cell; it is spent.
    """
    weights = {slots[one.organelle_id]: one.weights for one in learners}
    states = {slots[one.organelle_id]: one.optimizer_state for one in learners}
    rates = {slots[one.organelle_id]: one.rate for one in learners}
    lessons = [lesson for lesson in lessons if lesson.organelle_id in slots]
    statistics = LearningStatistics()
    if lessons:
        batch = LearningBatch(tuple(lesson.lesson for lesson in lessons), rates)
        if runtime.practice.perturbation:
            traces = [lesson.trace for lesson in lessons if lesson.trace is not None]
            weights, states, statistics = trace_update(batch, traces, weights, states)
        else:
            weights, states, statistics = runtime.host.learn(batch, weights, states)
            state.spent += Cost(calls=1)
    updates = []
    for learner in learners:
        slot = slots[learner.organelle_id]
        own = [lesson for lesson in lessons if lesson.organelle_id == learner.organelle_id]
        cost = _cost_together(own, runtime.lora_parameters(learner.rank), runtime)
        state.spent += cost
        scored = scoring.get(learner.organelle_id, {})
        flops = Counter({cell: taken.flops for cell, taken in scored.items()})
        for lesson in own:
            flops[lesson.cell] += lesson.cost.flops
        is_sick = slot in statistics.sick
        updates.append(
            Update(
                learner.organelle_id,
                runtime.store.put_weights(weights[slot]),
                runtime.store.put_optimizer_state(states[slot]),
                cost=sum(scored.values(), cost),
                flops=flops,
                lessons=len(own),
                tokens=statistics.tokens.get(slot, 0),
                loss=0.0 if is_sick else statistics.loss.get(slot, 0.0),
                gradient_norm=0.0 if is_sick else statistics.gradient_norm.get(slot, 0.0),
                is_sick=is_sick,
            )
        )
    return updates


def _within_budget(
    lessons: Sequence[_PricedLesson], state: EcologyState, runtime: Runtime, draw: Draw
) -> list[_PricedLesson]:
    """The lessons that what is left pays for."""
    costs, left = [lesson.cost.flops for lesson in lessons], runtime.until - state.spent.flops
    chosen = affordable(costs, left, draw, "lessons")
    if costs and left > 0 and not chosen:  # a run that spends nothing would never end
        chosen = [int(np.argmin(costs))]
    return [lessons[index] for index in chosen]


def _priced(
    targets: Sequence[WeightedTarget], learner: _Learner, slot: int, runtime: Runtime
) -> Iterator[_PricedLesson]:
    """The lessons of one learner: forward and backward over prompt and answer, or its trace."""
    prompts = sorted({target.item.prompt for target in targets})
    encoded = runtime.host.encode(prompts) if prompts else []
    lengths = dict(zip(prompts, map(len, encoded), strict=True))
    parameters = runtime.lora_parameters(learner.rank)
    for target in targets:
        read, written = lengths[target.item.prompt], len(target.token_ids)
        lesson = Lesson(target.item.prompt, target.token_ids, slot, target.weight)
        if target.trace is None:
            flops = learning_flops(runtime.host.shape, parameters, read, written)
            cost = Cost(read, written, flops=flops, executed=flops)
        else:  # nothing is read or written again
            flops = tracing_flops(runtime.read_parameters(learner.rank), written)
            cost = Cost(flops=flops, executed=flops)
        cell = cell_name(target.item.cell)
        yield _PricedLesson(learner.organelle_id, cell, lesson, cost, target.trace)


def _cost_together(lessons: Sequence[_PricedLesson], parameters: int, runtime: Runtime) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, prompts = Cost(), set[str]()
    for lesson in lessons:
        total += lesson.cost
        if lesson.lesson.prompt in prompts:
            read = lesson.cost.tokens_in
            total += Cost(executed=-learning_flops(runtime.host.shape, parameters, read, 0))
        prompts.add(lesson.lesson.prompt)
    return total


def _reference_ids(outcomes: Sequence[Outcome], runtime: Runtime) -> Mapping[str, tuple[int, ...]]:
    """Token ids of reference answers by their text, if the rule sees them."""
    if not runtime.learning_rule.sees_gold:
        return {}
    items = (item for outcome in outcomes for item in outcome.assignment.items)
    answers = list(dict.fromkeys(item.answer for item in items))
    return dict(zip(answers, runtime.host.encode_answers(answers), strict=True))


def _with_host_log_probabilities(
    practice: Mapping[OrganelleId, list[Outcome]], state: EcologyState, runtime: Runtime
) -> tuple[dict[OrganelleId, list[Outcome]], dict[OrganelleId, dict[str, Cost]]]:
    """The same practice, each rollout with the bare host's log-probabilities of its tokens.

    One call scores the answers of everyone who learns. Also says what that took, by organelle and
    cell.
    """
    learners = {
        organelle_id: own
        for organelle_id, own in practice.items()
        if step_size(state.genome(organelle_id).traits, 0)
    }
    rollouts = [
        rollout for own in learners.values() for outcome in own for rollout in outcome.rollouts
    ]
    if not rollouts:
        return dict(practice), {}
    scores = runtime.host.score(
        [rollout.item.prompt for rollout in rollouts],
        [rollout.token_ids for rollout in rollouts],
        [HOST_SLOT] * len(rollouts),
    )
    scored = iter(
        replace(rollout, host_log_probabilities=np.asarray(values))
        for rollout, values in zip(rollouts, scores, strict=True)
    )
    costs: dict[OrganelleId, dict[str, Cost]] = {organelle_id: {} for organelle_id in learners}
    state.spent += Cost(calls=1)
    for rollout in rollouts:
        read, written = rollout.cost.tokens_in, rollout.cost.tokens_out
        flops = scoring_flops(runtime.host.shape, 0, read, written)
        cost = Cost(read, written, flops=flops, executed=flops)
        by_cell, cell = costs[rollout.organelle_id], cell_name(rollout.item.cell)
        by_cell[cell] = by_cell.get(cell, Cost()) + cost
        state.spent += cost
    return dict(practice) | {
        organelle_id: [
            replace(outcome, rollouts=tuple(next(scored) for _ in outcome.rollouts))
            for outcome in own
        ]
        for organelle_id, own in learners.items()
    }, costs
