"""Learning: the rule turns a generation into weighted targets, and one batched step learns them.

A rule returns a ``WeightedTarget`` for what it would learn of a rollout. With its price that is a
``PricedLesson``; those that the budget pays for go to the host as a ``Lesson`` each, in one batch.
An ``Update`` per organelle is what came of it.

The step is a backward pass through the host, or what the rule's own estimator makes of its lessons.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from symbiont_ecology.base.events import Learned
from symbiont_ecology.base.fence import FaultError
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import (
    BlobRef,
    LearningBatch,
    LearningStatistics,
    Lesson,
    OrganelleId,
    cell_name,
    prepend_phrase,
)
from symbiont_ecology.ecology import DROPOUT, Outcome, RememberedAnswer, map_rollouts, practice_of
from symbiont_ecology.ecology.learning import Estimator, Experience, WeightedTarget, learning_rules
from symbiont_ecology.ecology.learning.experience import (
    LearnedSlots,
    Learner,
    PricedLesson,
    checked_targets,
)
from symbiont_ecology.run.act import costs_of, read_by_host, reading_costs, waves
from symbiont_ecology.run.budget import affordable
from symbiont_ecology.run.remember import replayed
from symbiont_ecology.run.runtime import GenerationContext


@dataclass(frozen=True)
class Update:
    """Change of one organelle by a generation: the event that records it, and its optimizer state.

    ``flops`` are those of the event by cell name. ``is_sick`` says that a loss or gradient was not
    finite.
    """

    learned: Learned
    optimizer_state: BlobRef
    flops: Mapping[str, int]
    is_sick: bool


def learn(outcomes: Sequence[Outcome], context: GenerationContext) -> list[Update]:
    """Return one update for everyone who practised, or has answers to replay. Nothing is installed
    yet: the old weights acted."""
    remembered = replayed(outcomes, context)
    practice: dict[OrganelleId, Sequence[Outcome]] = {name: [] for name in remembered}
    practice |= _lessons_of([o for o in outcomes if o.assignment.is_learned_from], context)
    if context.learning_rule.needs_host_log_probabilities:
        # Where nobody learns, nothing is read.
        able = [name for name in practice if learning_rate(context.state.genome(name).traits, 0)]
        read = [outcome for name in able for outcome in practice[name]]
        practice |= practice_of(map_rollouts(read, partial(read_by_host, context=context)))
    taught = list[list[Learner]]()
    for wave in _learners(set(practice), context):
        for place, learner in enumerate(wave):
            name = learner.organelle.id
            wave[place] = _taught(learner, practice[name], remembered.get(name, ()), context)
        taught.append(wave)
    _leave_out_unpaid(taught, context)
    updates = []
    for wave in taught:
        updates += _step(wave, context, context.learning_rule.estimator)
    return updates


def _lessons_of(
    outcomes: Sequence[Outcome], context: GenerationContext
) -> Mapping[OrganelleId, Sequence[Outcome]]:
    """Return what each organelle may learn from: its practice, or that of the users that it serves,
    whoever answered them."""
    if "servers" not in context.strategy.wants:
        return practice_of(outcomes)
    of_server, state = defaultdict[OrganelleId, list[Outcome]](list), context.state
    for outcome in outcomes:
        name = outcome.assignment.items[0].user
        if not name:  # a lesson of a log, for one of them
            of_server[outcome.assignment.organelle_id].append(outcome)
        user = state.users.get(name)
        if user and user.chosen in state.population:  # else it waits to be replayed
            of_server[user.chosen].append(outcome)
    return of_server


def learn_answers(
    answers: Mapping[OrganelleId, Sequence[RememberedAnswer]], context: GenerationContext
) -> list[Update]:
    """Make one step of each organelle on remembered answers, whatever its rule is."""
    updates = []
    for wave in _learners(set(answers), context):
        for place, learner in enumerate(wave):
            own = answers[learner.organelle.id]
            targets = [WeightedTarget(one.item, one.token_ids, 1.0) for one in own]
            wave[place] = replace(learner, lessons=_priced(targets, learner, context))
        updates += _step(wave, context)
    return updates


def learning_rate(traits: Mapping[str, float], updates: int) -> float:
    """Return the learning rate of Adam after so many updates. It falls with their root, from
    ``aging`` on.

    The young learn fast, the old keep what they know. A child that inherits its parent's optimizer
    state is as old as its parent.
    """
    aging = traits.get("aging", 0.0)
    return traits.get("learning_rate", 0.0) / math.sqrt(1 + updates / aging if aging else 1)


def _learners(names: set[OrganelleId], context: GenerationContext) -> Iterator[list[Learner]]:
    """Yield organelles in slots, wave by wave, without lessons."""
    state, store = context.state, context.store
    for wave in waves(names, context.host.slots):
        learners = []
        for name, slot in wave.items():
            organelle = state.population[name]
            weights = store.weights(organelle.genome.weights)
            before = store.optimizer_state(organelle.optimizer_state)
            rate = learning_rate(organelle.genome.traits, before.step)
            learners.append(Learner(organelle, slot, weights, before, rate))
        yield learners


def _taught(
    learner: Learner,
    outcomes: Sequence[Outcome],
    remembered: Sequence[RememberedAnswer],
    context: GenerationContext,
) -> Learner:
    """Return a learner with all lessons that its rule would give it; where the rule fails, there
    are none."""
    rule, host, state = context.learning_rule, context.host, learner.optimizer_state
    if learner.rate:  # who cannot learn (the frozen control) pays for no lesson
        reference_ids: dict[str, tuple[int, ...]] = {}
        if rule.sees_gold:
            items = (item for outcome in outcomes for item in outcome.assignment.items)
            answers = list(dict.fromkeys(item.answer for item in items))
            reference_ids = dict(zip(answers, host.encode_answers(answers), strict=True))
        experience = Experience(tuple(outcomes), state.notes, reference_ids, tuple(remembered))
        with suppress(FaultError):
            targets, notes = context.faults.call(
                learning_rules.called(rule),
                lambda: checked_targets(rule.targets(experience), host.shape.vocab),
            )
            lessons = _priced(targets, learner, context, rule.estimator)
            state = replace(state, notes=notes)
            learner = replace(learner, optimizer_state=state, lessons=lessons)
    rollouts = (rollout for outcome in outcomes for rollout in outcome.rollouts)
    read = [rollout for rollout in rollouts if rollout.host_log_probabilities is not None]
    flops = Counter[str]()
    for rollout, cost in zip(read, reading_costs(read, host), strict=True):
        flops[cell_name(rollout.item.cell)] += cost.flops
    return replace(learner, reading_flops=flops)


def _priced(
    targets: Sequence[WeightedTarget],
    learner: Learner,
    context: GenerationContext,
    estimator: Estimator | None = None,
) -> list[PricedLesson]:
    """Return lessons: forward and backward over prompt and answer, or what the estimator asks."""
    host, rank = context.host, learner.weights.rank
    prompts = [prepend_phrase(learner.weights.phrase, target.item.prompt) for target in targets]
    if estimator is None:
        answers = [target.token_ids for target in targets]
        costs = costs_of(prompts, answers, host, host.shape.learning_flops, rank)
    else:
        costs = [estimator.cost(host, rank, target) for target in targets]
    return list(map(PricedLesson, targets, prompts, costs))


def _leave_out_unpaid(taught: Sequence[list[Learner]], context: GenerationContext) -> None:
    """Take from the learners of each wave the lessons that what is left does not pay for."""
    learners = [learner for wave in taught for learner in wave]
    lessons = [lesson for learner in learners for lesson in learner.lessons]
    costs = [lesson.cost.flops for lesson in lessons]
    left = context.until - context.state.spent.flops
    chosen = affordable(costs, left, context.draw, "lessons")
    if costs and left > 0 and not chosen:  # a run that spends nothing would never end
        chosen = [int(np.argmin(costs))]
    paid = {id(lessons[place]) for place in chosen}  # two lessons may be equal
    for wave in taught:
        for place, learner in enumerate(wave):
            own = [lesson for lesson in learner.lessons if id(lesson) in paid]
            wave[place] = replace(learner, lessons=own)


def _step(
    learners: Sequence[Learner], context: GenerationContext, estimator: Estimator | None = None
) -> list[Update]:
    """Make one step of all learners that share a wave of slots, and charge it. Who meets a number
    that is not finite stays what it was, and is sick."""
    if estimator is None:
        new_weights, new_states, statistics = _backpropagated(learners, context)
    else:
        new_weights, new_states, statistics = estimator.learn(learners, context.draw)
    updates, store = [], context.store
    for learner in learners:
        slot, weights, state = learner.slot, learner.weights, learner.optimizer_state
        new = new_weights.get(slot, weights)
        loss, norm = statistics.loss.get(slot, 0.0), statistics.gradient_norm.get(slot, 0.0)
        are_finite = map(math.isfinite, (loss, norm, new.vector.sum()))
        is_sick = slot in statistics.sick or not all(are_finite)
        flops = Counter(learner.reading_flops)
        if not is_sick:
            weights, state = new, new_states.get(slot, state)
        context.state.spent += _cost_together(learner, context)
        for lesson in learner.lessons:
            flops[cell_name(lesson.target.item.cell)] += lesson.cost.flops
        learned = Learned(
            context.state.generation,
            id=learner.organelle.id,
            lessons=len(learner.lessons),
            tokens=statistics.tokens.get(slot, 0),
            flops=flops.total(),
            loss=0.0 if is_sick else loss,
            gradient_norm=0.0 if is_sick else norm,
            weights=store.put_weights(weights),
        )
        updates.append(Update(learned, store.put_optimizer_state(state), flops, is_sick))
    return updates


def _backpropagated(learners: Sequence[Learner], context: GenerationContext) -> LearnedSlots:
    """Make a step by one backward pass through the host, and charge the call."""
    lessons = tuple(
        Lesson(lesson.prompt, lesson.target.token_ids, learner.slot, lesson.target.weight)
        for learner in learners
        for lesson in learner.lessons
    )
    if not lessons:
        return {}, {}, LearningStatistics()
    context.state.spent += Cost(calls=1)
    organelles = {learner.slot: learner.organelle for learner in learners}
    batch = LearningBatch(
        lessons,
        {learner.slot: learner.rate for learner in learners},
        dropout={slot: one.genome.traits.get(DROPOUT, 0.0) for slot, one in organelles.items()},
        dropout_seeds={slot: context.draw.key(DROPOUT, one.id) for slot, one in organelles.items()},
    )
    weights = {learner.slot: learner.weights for learner in learners}
    states = {learner.slot: learner.optimizer_state for learner in learners}
    return context.host.learn(batch, weights, states)


def _cost_together(learner: Learner, context: GenerationContext) -> Cost:
    """Return what the lessons of one learner take together: a prompt of several is read once."""
    parameters = context.host.layout.size(learner.weights.rank)
    reads = Counter((lesson.prompt, lesson.cost.tokens_in) for lesson in learner.lessons)
    saved = sum(
        (times - 1) * context.host.shape.learning_flops(parameters, read, 0)
        for (_, read), times in reads.items()
    )
    return sum((lesson.cost for lesson in learner.lessons), Cost(executed=-saved))
