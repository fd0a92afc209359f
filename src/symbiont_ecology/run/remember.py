"""Memory of users: the last answers that each was given, with their verdicts. Without
users, cells remember what was right.

Learning replays what was accepted, so that nothing is forgotten and little is asked twice.
Their sketches (``model.sketches``) or embeddings (``HostKernel.embed``) say which users want the
same.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import OrganelleId, cell_name
from symbiont_ecology.ecology import Outcome, RememberedAnswer, Rollout, User
from symbiont_ecology.ecology.users import Basis, read_vector, shared_among
from symbiont_ecology.run.act import costs_of
from symbiont_ecology.run.runtime import GenerationContext

MAX_OF_CELL = 64
"""The newest right answers of a cell that are remembered."""


def remember(outcomes: Sequence[Outcome], context: GenerationContext) -> None:
    """Let every user remember what it was answered in practice, in the order of asking. Without
    users, cells remember what was right."""
    state, strategy = context.state, context.strategy
    if context.tasks.users is None:
        _remember_cells(outcomes, context)
        return
    shared = shared_among(len(context.tasks.names))
    rollouts = [
        rollout
        for outcome in outcomes
        if outcome.assignment.is_practice
        for rollout in outcome.rollouts
        if rollout.item.user and rollout.token_ids
    ]
    answers = [_remembered(rollout, context) for rollout in rollouts]
    if rollouts and "sketches" in strategy.wants:
        answers = _with_vectors(answers, context)
    for rollout, answer in zip(rollouts, answers, strict=True):
        name = rollout.item.user
        before = state.users.get(name, User())
        state.users[name] = before.after(answer, shared)
        has_changed = "memories" in strategy.wants and state.users[name].has_changed_from(before)
        if has_changed and (server := state.population.get(before.server)):
            state.population[server.id] = server.remembering(before.accepted)


def replayed(
    outcomes: Sequence[Outcome], context: GenerationContext
) -> Mapping[OrganelleId, Sequence[RememberedAnswer]]:
    """Return accepted answers to learn again, drawn from all users, for those who serve them.

    There are ``learning_rule.replay`` of them for each rollout of practice.
    """
    practice = [outcome for outcome in outcomes if outcome.assignment.is_learned_from]
    rows = sum(len(outcome.rollouts or outcome.assignment.items) for outcome in practice)
    count = round(context.learning_rule.replay * rows)
    accepted = context.state.accepted_answers()
    answers: dict[OrganelleId, list[RememberedAnswer]] = defaultdict(list)
    if accepted and count:
        for place in context.draw("replay").integers(len(accepted), size=count):
            server, answer = accepted[place]
            answers[server].append(answer)
    return answers


def sketched(answers: Sequence[RememberedAnswer], context: GenerationContext) -> np.ndarray:
    """Return gradient sketches of answers under the bare host, ``(answers, dimensions)``, charged
    to the budget: a pass forward and one backward."""
    return context.host.sketch(*_read(answers, context, context.host.shape.sketching_flops))


def embedded(answers: Sequence[RememberedAnswer], context: GenerationContext) -> np.ndarray:
    """Return embeddings of answers by the bare host, ``(answers, dimensions)``, charged to the
    budget: a pass forward."""
    flops = context.host.shape.embedding_flops
    return context.host.embed(*_read(answers, context, lambda _, read, said: flops(read + said)))


def _read(
    answers: Sequence[RememberedAnswer],
    context: GenerationContext,
    flops: Callable[[int, int, int], int],
) -> tuple[list[str], list[tuple[int, ...]]]:
    """Charge a pass over answers to the budget, and return their prompts and tokens."""
    prompts = [answer.prompt for answer in answers]
    ids = [answer.token_ids for answer in answers]
    costs = costs_of(prompts, ids, context.host, flops, context.rank)
    context.state.spent += sum(costs, Cost(calls=1))
    return prompts, ids


def _remember_cells(outcomes: Sequence[Outcome], context: GenerationContext) -> None:
    """Keep the newest right answers of each cell, one for a prompt; reference answers where the
    rule sees them."""
    rule, memory = context.learning_rule, context.state.memory
    right: dict[str, list[RememberedAnswer]] = defaultdict(list)
    for outcome in outcomes:
        if not (rule.replay and outcome.assignment.is_learned_from):
            continue
        cell, items = cell_name(outcome.assignment.cell), outcome.assignment.items
        right[cell] += [_remembered(one, context) for one in outcome.rollouts if one.is_right]
        if rule.sees_gold:
            ids = context.host.encode_answers([item.answer for item in items])
            right[cell] += [
                RememberedAnswer(item.family, item.depth, item.prompt, tokens, is_accepted=True)
                for item, tokens in zip(items, ids, strict=True)
            ]
    for cell, answers in right.items():
        by_prompt = {one.prompt: one for one in (*memory.get(cell, ()), *answers)}
        memory[cell] = tuple(by_prompt.values())[-MAX_OF_CELL:]


def _remembered(rollout: Rollout, context: GenerationContext) -> RememberedAnswer:
    item = rollout.item
    if item.user and context.tasks.families[item.family].is_open:
        confidence = context.state.record(rollout.organelle_id, but_for=item.user)
    else:
        sum_of_all = float(rollout.log_probabilities.sum())
        confidence = math.exp(min(sum_of_all, 0.0)) if math.isfinite(sum_of_all) else 0.0
    said_by_others = item.logged is not None and not item.logged.author
    return RememberedAnswer(
        item.family,
        item.depth,
        item.prompt,
        rollout.answer_ids,
        is_accepted=rollout.is_right,
        organelle_id="" if said_by_others else rollout.organelle_id,
        confidence=confidence,
        reply=rollout.text if item.user else "",
    )


def _with_vectors(
    answers: Sequence[RememberedAnswer], context: GenerationContext
) -> list[RememberedAnswer]:
    """Return the answers with what says who wants what: coordinates if there are bases, or
    sketches."""
    space = context.state.sketch_space
    context.state.scored += len(answers)
    if space.bases:
        bases = {family: Basis.read(text) for family, text in space.bases.items()}
        return [
            answer.located(bases[answer.family].coordinates(embedding))
            for answer, embedding in zip(answers, embedded(answers, context), strict=True)
        ]
    common = {family: read_vector(text) for family, text in space.common.items()}
    return [
        answer.sketched(sketch - common.get(answer.family, 0.0))
        for answer, sketch in zip(answers, sketched(answers, context), strict=True)
    ]
