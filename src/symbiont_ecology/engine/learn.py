"""Learning: the rule turns a generation into weighted targets, and one batched step learns them.

The step is a backward pass through the host, or what the rule's own estimator makes of its lessons.
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
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import read_by_host, reading_costs, waves
from symbiont_ecology.engine.budget import affordable
from symbiont_ecology.engine.remember import replayed
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Learned
from symbiont_ecology.fence import FaultError
from symbiont_ecology.learning import Estimator, Experience, Targets, WeightedTarget, learning_rules
from symbiont_ecology.learning.experience import (
    LearnedSlots,
    Learner,
    PricedLesson,
    checked_targets,
)
from symbiont_ecology.types import (
    BlobRef,
    LearningBatch,
    LearningStatistics,
    Lesson,
    OrganelleId,
    behind,
    cell_name,
)
from symbiont_ecology.weights import AdapterWeights

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
    updates = []
    for wave in learners_of_waves:
        paid = [[lesson for lesson in learner.lessons if next(is_paid)] for learner in wave]
        pairs = zip(wave, paid, strict=True)
        learners = [replace(learner, lessons=lessons) for learner, lessons in pairs]
        updates += _learn_wave(learners, turn, turn.learning_rule.estimator)
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
            learners.append(replace(learner, lessons=_priced(targets, learner.weights, turn)))
        updates += _learn_wave(learners, turn)
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
) -> Learner:
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
    lessons = _priced(targets, weights, turn, turn.learning_rule.estimator)
    read = [
        rollout
        for outcome in outcomes
        for rollout in outcome.rollouts
        if rollout.host_log_probabilities is not None
    ]
    cells = (cell_name(rollout.item.cell) for rollout in read)
    costs = list(zip(cells, reading_costs(read, turn.host), strict=True))
    return Learner(organelle, slot, weights, optimizer_state, rate, lessons, costs)


def _taught(experience: Experience, turn: Turn) -> Targets:
    """What the rule makes of an experience; where it fails, there is nothing to learn."""
    rule, vocab = turn.learning_rule, turn.host.shape.vocab
    part = learning_rules.called(rule)
    try:
        return turn.faults.call(part, lambda: checked_targets(rule.targets(experience), vocab))
    except FaultError:
        return (), experience.notes


def _learn_wave(
    learners: Sequence[Learner], turn: Turn, estimator: Estimator | None = None
) -> list[Update]:
    """Make one step of all learners that share a wave of slots."""
    weights = {learner.slot: learner.weights for learner in learners}
    states = {learner.slot: learner.optimizer_state for learner in learners}
    if estimator is None:
        new_weights, new_states, statistics = _backpropagated(learners, turn)
    else:
        new_weights, new_states, statistics = estimator.learn(learners, turn.draw)
    # An engine may not notice: who is not finite stays what it was, and is sick.
    numbers = statistics.loss, statistics.gradient_norm
    sick = {slot for values in numbers for slot, x in values.items() if not math.isfinite(x)}
    sick |= {slot for slot, new in new_weights.items() if not np.isfinite(new.vector.sum())}
    sick |= set(statistics.sick)
    weights |= {slot: new for slot, new in new_weights.items() if slot not in sick}
    states |= {slot: new for slot, new in new_states.items() if slot not in sick}
    updates = []
    for learner in learners:
        slot, flops = learner.slot, Counter[str]()
        turn.state.spent += _cost_together(learner, turn)
        costs = [(lesson.cell, lesson.cost) for lesson in learner.lessons]
        for cell, cost in (*learner.scoring, *costs):
            flops[cell] += cost.flops
        is_sick = slot in sick
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


def _backpropagated(learners: Sequence[Learner], turn: Turn) -> LearnedSlots:
    """Make a step by one backward pass through the host, and charge the call."""
    lessons = tuple(
        Lesson(lesson.prompt, lesson.target.token_ids, learner.slot, lesson.target.weight)
        for learner in learners
        for lesson in learner.lessons
    )
    if not lessons:
        return {}, {}, LearningStatistics()
    turn.state.spent += Cost(calls=1)
    organelles = {learner.slot: learner.organelle for learner in learners}
    batch = LearningBatch(
        lessons,
        {learner.slot: learner.rate for learner in learners},
        dropout={slot: one.genome.traits.get(DROPOUT, 0.0) for slot, one in organelles.items()},
        dropout_seeds={slot: turn.draw.key(DROPOUT, one.id) for slot, one in organelles.items()},
    )
    weights = {learner.slot: learner.weights for learner in learners}
    states = {learner.slot: learner.optimizer_state for learner in learners}
    return turn.host.learn(batch, weights, states)


def _are_paid(lessons: Sequence[PricedLesson], turn: Turn) -> Iterator[bool]:
    """Which of the lessons what is left pays for."""
    costs, left = [lesson.cost.flops for lesson in lessons], turn.until - turn.state.spent.flops
    chosen = set(affordable(costs, left, turn.draw, "lessons"))
    if costs and left > 0 and not chosen:  # a run that spends nothing would never end
        chosen = {int(np.argmin(costs))}
    return (index in chosen for index in range(len(lessons)))


def _priced(
    targets: Sequence[WeightedTarget],
    weights: AdapterWeights,
    turn: Turn,
    estimator: Estimator | None = None,
) -> list[PricedLesson]:
    """Return the lessons of one learner: forward and backward over prompt and answer, or what the
    estimator asks."""
    host, rank = turn.host, weights.rank
    prompts = [behind(weights.phrase, target.item.prompt) for target in targets]
    if estimator is not None:
        costs = [estimator.cost(host, rank, target) for target in targets]
        return list(map(PricedLesson, targets, prompts, costs))
    unique, lessons = sorted(set(prompts)), []
    encoded = host.encode(unique) if unique else []
    lengths = dict(zip(unique, map(len, encoded), strict=True))
    for prompt, target in zip(prompts, targets, strict=True):
        read, written = lengths[prompt], len(target.token_ids)
        flops = host.shape.learning_flops(host.layout.size(rank), read, written)
        lessons.append(PricedLesson(target, prompt, Cost.computed(flops, read, written)))
    return lessons


def _cost_together(learner: Learner, turn: Turn) -> Cost:
    """What the lessons of one learner take together: a prompt of several is read once."""
    total, prompts = Cost(), set[str]()
    parameters = turn.host.layout.size(learner.weights.rank)
    for lesson in learner.lessons:
        total += lesson.cost
        if lesson.prompt in prompts:
            read = lesson.cost.tokens_in
            total += Cost(executed=-turn.host.shape.learning_flops(parameters, read, 0))
        prompts.add(lesson.prompt)
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
