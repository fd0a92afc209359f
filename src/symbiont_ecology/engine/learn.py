"""Learning: the rule turns a generation into weighted targets, and one batched step learns them.

The step is a backward pass through the host. Under a rule that perturbs there is none: reward and
trace are enough (``weights.traces``).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from symbiont_ecology.ecology import (
    DROPOUT,
    Organelle,
    Outcome,
    RememberedAnswer,
    map_rollouts,
    practice_of,
)
from symbiont_ecology.economics import Cost, tracing_flops
from symbiont_ecology.engine.act import read_by_host, reading_costs, waves
from symbiont_ecology.engine.budget import affordable
from symbiont_ecology.engine.remember import replayed
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Learned
from symbiont_ecology.fence import FaultError
from symbiont_ecology.learning import Experience, Targets, WeightedTarget, learning_rules
from symbiont_ecology.learning.experience import checked_targets
from symbiont_ecology.types import (
    BlobRef,
    LearningBatch,
    LearningStatistics,
    Lesson,
    OrganelleId,
    behind,
    cell_name,
)
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import Trace, ascended, has_zero_b, with_random_b

Practice = Mapping[str, Sequence[Outcome]]
"""Outcomes by the id of their organelle."""


@dataclass(frozen=True)
class Update:
    """What a generation did to one organelle: the event that records it, and its optimizer state.

    ``flops`` are those of the event by cell name. ``is_sick`` says that a loss or gradient was not
    finite.
    """

    learned: Learned
    optimizer_state: BlobRef
    flops: Mapping[str, int]
    is_sick: bool


@dataclass(frozen=True)
class _PricedLesson:
    """A lesson with the cell that it is about and what it takes alone."""

    cell: str
    lesson: Lesson
    cost: Cost
    trace: Trace | None


@dataclass(frozen=True)
class _Learner:
    """An organelle that practised, with all lessons that its rule would give it.

    ``scoring`` is what the host's log-probabilities of its answers took, with the cell of each.
    """

    organelle: Organelle
    slot: int
    weights: AdapterWeights
    optimizer_state: OptimizerState
    rate: float
    scoring: Sequence[tuple[str, Cost]]
    lessons: Sequence[_PricedLesson]


def learn(outcomes: Sequence[Outcome], turn: Turn) -> list[Update]:
    """One update for everyone who practised, or has answers to replay. Nothing is installed yet:
    the old weights acted."""
    practice: Practice = practice_of(o for o in outcomes if o.assignment.is_learned_from)
    remembered = replayed(outcomes, turn)
    practice = {**{name: [] for name in remembered}, **practice}
    if turn.learning_rule.needs_host_log_probabilities:
        practice = _read_by_host(practice, turn)
    learners_of_waves = [
        [
            _learner(
                turn.state.population[name], slot, practice[name], remembered.get(name, ()), turn
            )
            for name, slot in slots.items()
        ]
        for slots in waves(set(practice), turn.host.slots)
    ]
    everyone = [learner for wave in learners_of_waves for learner in wave]
    is_paid = _are_paid([lesson for learner in everyone for lesson in learner.lessons], turn)
    updates, by_traces = [], turn.practice.perturbation > 0
    for wave in learners_of_waves:
        paid = [[lesson for lesson in learner.lessons if next(is_paid)] for learner in wave]
        pairs = zip(wave, paid, strict=True)
        learners = [replace(learner, lessons=lessons) for learner, lessons in pairs]
        updates += _learn_wave(learners, turn, by_traces=by_traces)
    return updates


def learn_answers(
    answers: Mapping[OrganelleId, Sequence[RememberedAnswer]], turn: Turn
) -> list[Update]:
    """One step of each organelle on remembered answers, whatever its rule is."""
    updates = []
    for slots in waves(set(answers), turn.host.slots) if answers else ():
        learners = []
        for name, slot in slots.items():
            learner = _learner(turn.state.population[name], slot, (), (), turn)
            targets = [WeightedTarget(one.item, one.token_ids, 1.0) for one in answers[name]]
            lessons = _priced(targets, slot, learner.weights, turn)
            learners.append(replace(learner, lessons=lessons))
        updates += _learn_wave(learners, turn, by_traces=False)
    return updates


def learning_rate(traits: Mapping[str, float], updates: int) -> float:
    """The learning rate of Adam after so many updates. It falls with their root, from ``aging`` on.

    The young learn fast, the old keep what they know. A child that inherits its parent's optimizer
    state is as old as its parent.
    """
    aging = traits.get("aging", 0.0)
    return traits.get("learning_rate", 0.0) / math.sqrt(1 + updates / aging if aging else 1)


def _learner(
    organelle: Organelle,
    slot: int,
    outcomes: Sequence[Outcome],
    remembered: Sequence[RememberedAnswer],
    turn: Turn,
) -> _Learner:
    weights = turn.store.weights(organelle.genome.weights)
    optimizer_state = turn.store.optimizer_state(organelle.optimizer_state)
    traits = organelle.genome.traits
    rate = learning_rate(traits, optimizer_state.step)
    targets: Sequence[WeightedTarget] = ()
    if rate:  # who cannot learn (the frozen control) pays for no lesson
        reference_ids = _reference_ids(outcomes, turn)
        experience = Experience(
            tuple(outcomes), optimizer_state.notes, traits, reference_ids, tuple(remembered)
        )
        targets, notes = _taught(experience, turn)
        optimizer_state = replace(optimizer_state, notes=notes)
        if turn.practice.perturbation and has_zero_b(weights):  # its traces say nothing
            weights, targets = with_random_b(weights, turn.draw("wake", organelle.id)), ()
    lessons = _priced(targets, slot, weights, turn)
    read = [
        rollout
        for outcome in outcomes
        for rollout in outcome.rollouts
        if rollout.host_log_probabilities is not None
    ]
    cells = (cell_name(rollout.item.cell) for rollout in read)
    costs = list(zip(cells, reading_costs(read, turn.host), strict=True))
    return _Learner(organelle, slot, weights, optimizer_state, rate, scoring=costs, lessons=lessons)


def _taught(experience: Experience, turn: Turn) -> Targets:
    """What the rule makes of an experience; where it fails, there is nothing to learn."""
    rule, vocab = turn.learning_rule, turn.host.shape.vocab
    part = learning_rules.called(rule)
    try:
        return turn.faults.call(part, lambda: checked_targets(rule.targets(experience), vocab))
    except FaultError:
        return (), experience.notes


def _learn_wave(learners: Sequence[_Learner], turn: Turn, *, by_traces: bool) -> list[Update]:
    """One step of all learners that share a wave of slots, by the traces of their lessons or by a
    backward pass."""
    weights = {learner.slot: learner.weights for learner in learners}
    states = {learner.slot: learner.optimizer_state for learner in learners}
    rates = {learner.slot: learner.rate for learner in learners}
    lessons = tuple(lesson.lesson for learner in learners for lesson in learner.lessons)
    statistics = LearningStatistics()
    if by_traces:
        statistics = _update_by_traces(learners, weights, states)
    elif lessons:
        dropout = {
            learner.slot: learner.organelle.genome.traits.get(DROPOUT, 0.0) for learner in learners
        }
        seeds = {learner.slot: turn.draw.key(DROPOUT, learner.organelle.id) for learner in learners}
        batch = LearningBatch(lessons, rates, dropout=dropout, dropout_seeds=seeds)
        new_weights, new_states, statistics = turn.host.learn(batch, weights, states)
        turn.state.spent += Cost(calls=1)
        # An engine may not notice: who is not finite stays what it was, and is sick.
        numbers = statistics.loss, statistics.gradient_norm
        sick = {slot for values in numbers for slot, x in values.items() if not math.isfinite(x)}
        sick |= {slot for slot in weights if not np.isfinite(new_weights[slot].vector.sum())}
        statistics = replace(statistics, sick=tuple(sorted({*statistics.sick, *sick})))
        weights |= {slot: new_weights[slot] for slot in weights if slot not in sick}
        states |= {slot: new_states[slot] for slot in weights if slot not in sick}
    updates = []
    for learner in learners:
        slot, flops = learner.slot, Counter[str]()
        turn.state.spent += _cost_together(learner, turn)
        costs = [(lesson.cell, lesson.cost) for lesson in learner.lessons]
        for cell, cost in (*learner.scoring, *costs):
            flops[cell] += cost.flops
        is_sick = slot in statistics.sick
        learned = Learned(
            turn.state.generation,
            id=learner.organelle.id,
            lessons=len(learner.lessons),
            tokens=statistics.tokens.get(slot, 0),
            flops=flops.total(),
            loss=0.0 if is_sick else statistics.loss.get(slot, 0.0),
            gradient_norm=0.0 if is_sick else statistics.gradient_norm.get(slot, 0.0),
            weights=turn.store.put_weights(weights[slot]),
        )
        optimizer_state = turn.store.put_optimizer_state(states[slot])
        updates.append(Update(learned, optimizer_state, flops, is_sick))
    return updates


def _update_by_traces(
    learners: Sequence[_Learner],
    weights: dict[int, AdapterWeights],
    states: dict[int, OptimizerState],
) -> LearningStatistics:
    """A step up the mean of weight · trace for everyone with lessons, and no loss to tell of.

    All traces of one slot come from one batch of rollouts. A slot whose step is not finite stays as
    it was, and is said to be sick.
    """
    norms, tokens, sick = {}, {}, []
    for learner in learners:
        slot, lessons = learner.slot, [lesson.lesson for lesson in learner.lessons]
        traces = [lesson.trace for lesson in learner.lessons if lesson.trace is not None]
        if not traces:
            continue
        shares = [np.asarray(lesson.weight) / len(lessons) for lesson in lessons]
        rows, rank = [trace.row for trace in traces], learner.weights.rank
        credit = traces[0].traces.credit(rows, shares, rank)
        norms[slot] = float(np.linalg.norm(credit))
        tokens[slot] = sum(len(lesson.completion) for lesson in lessons)
        after = ascended(learner.weights, learner.optimizer_state, credit, learner.rate)
        if np.isfinite(after[0].vector).all():
            weights[slot], states[slot] = after
        else:
            sick.append(slot)
    return LearningStatistics({}, norms, tokens, tuple(sick))


def _are_paid(lessons: Sequence[_PricedLesson], turn: Turn) -> Iterator[bool]:
    """Which of the lessons what is left pays for."""
    costs, left = [lesson.cost.flops for lesson in lessons], turn.until - turn.state.spent.flops
    chosen = set(affordable(costs, left, turn.draw, "lessons"))
    if costs and left > 0 and not chosen:  # a run that spends nothing would never end
        chosen = {int(np.argmin(costs))}
    return (index in chosen for index in range(len(lessons)))


def _priced(
    targets: Sequence[WeightedTarget], slot: int, weights: AdapterWeights, turn: Turn
) -> list[_PricedLesson]:
    """The lessons of one learner: forward and backward over prompt and answer, or its trace."""
    prompts = [behind(weights.phrase, target.item.prompt) for target in targets]
    unique, layout, rank = sorted(set(prompts)), turn.host.layout, weights.rank
    encoded = turn.host.encode(unique) if unique else []
    lengths = dict(zip(unique, map(len, encoded), strict=True))
    lessons = []
    for prompt, target in zip(prompts, targets, strict=True):
        read, written = lengths[prompt], len(target.token_ids)
        lesson = Lesson(prompt, target.token_ids, slot, target.weight)
        if target.trace is None:
            flops = turn.host.shape.learning_flops(layout.size(rank), read, written)
            cost = Cost.computed(flops, read, written)
        else:  # nothing is read or written again
            flops = tracing_flops(rank * sum(d_in for _, d_in, _ in layout.modules), written)
            cost = Cost.computed(flops)
        lessons.append(_PricedLesson(cell_name(target.item.cell), lesson, cost, target.trace))
    return lessons


def _cost_together(learner: _Learner, turn: Turn) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, prompts = Cost(), set[str]()
    parameters = turn.host.layout.size(learner.weights.rank)
    for lesson in learner.lessons:
        total += lesson.cost
        if lesson.lesson.prompt in prompts:
            read = lesson.cost.tokens_in
            total += Cost(executed=-turn.host.shape.learning_flops(parameters, read, 0))
        prompts.add(lesson.lesson.prompt)
    return total


def _reference_ids(outcomes: Sequence[Outcome], turn: Turn) -> Mapping[str, tuple[int, ...]]:
    """Token ids of reference answers by their text, if the rule sees them."""
    if not turn.learning_rule.sees_gold:
        return {}
    items = (item for outcome in outcomes for item in outcome.assignment.items)
    answers = list(dict.fromkeys(item.answer for item in items))
    return dict(zip(answers, turn.host.encode_answers(answers), strict=True))


def _read_by_host(practice: Practice, turn: Turn) -> Practice:
    """The same practice, with the bare host's log-probabilities where somebody learns."""
    rates = {name: learning_rate(turn.state.genome(name).traits, 0) for name in practice}
    outcomes = [outcome for name, rate in rates.items() if rate for outcome in practice[name]]
    read_outcomes = map_rollouts(outcomes, partial(read_by_host, turn=turn))
    return {**practice, **practice_of(read_outcomes)}
