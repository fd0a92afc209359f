"""What habitats remember: the last answers that each was given, with their verdicts. Without
habitats, cells remember what was right.

Learning replays what was accepted, so that nothing is forgotten and little is asked twice.
Their sketches (``host.sketches``) or embeddings (``host.embeddings``) say which habitats want the
same.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from symbiont_ecology.ecology import (
    Assignment,
    Habitat,
    Outcome,
    RememberedAnswer,
    Rollout,
    practice_of,
)
from symbiont_ecology.ecology.basis import Basis
from symbiont_ecology.ecology.habitats import read_vector, shared_among
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.types import OrganelleId, cell_name, last_turn

MOST_OF_CELL = 64
"""The newest right answers of a cell that are remembered."""
WORST_LOSS = 1e9
"""Nats, of an organelle whose log-probabilities are not finite. JSON has no such numbers."""


def remember(outcomes: Sequence[Outcome], turn: Turn) -> None:
    """Every habitat remembers what it was answered in practice, in the order of asking. Without
    habitats, cells remember what was right. Organelles remember which prompts they met."""
    if turn.strategy.keeps_ranges:
        _widen_ranges(outcomes, turn)
    if turn.tasks.habitats is None:
        _remember_cells(outcomes, turn)
        return
    habitats, shared = turn.state.habitats, shared_among(len(turn.tasks.names))
    rollouts = [
        rollout
        for outcome in outcomes
        if outcome.assignment.is_practice
        for rollout in outcome.rollouts
        if rollout.item.habitat and rollout.token_ids
    ]
    if rollouts and turn.strategy.needs_sketches:
        answers = _with_vectors(rollouts, turn)
    else:
        answers = [_remembered(rollout, turn) for rollout in rollouts]
    for rollout, answer in zip(rollouts, answers, strict=True):
        name = rollout.item.habitat
        before = habitats.get(name, Habitat())
        habitats[name] = before.after(answer, shared)
        if turn.strategy.keeps_memories and habitats[name].has_changed_from(before):
            _keep_memories(before, turn)
    if turn.strategy.scored_answers:
        _score({rollout.item.habitat: None for rollout in rollouts}, turn)


def replayed(
    outcomes: Sequence[Outcome], turn: Turn
) -> Mapping[OrganelleId, Sequence[RememberedAnswer]]:
    """Accepted answers to learn again, drawn from all habitats, for those who serve them.

    There are ``learning_rule.replay`` of them for each rollout of practice.
    """
    practice = [outcome for outcome in outcomes if outcome.assignment.is_learned_from]
    rows = sum(len(outcome.rollouts or outcome.assignment.items) for outcome in practice)
    count = round(turn.learning_rule.replay * rows)
    accepted = turn.state.accepted_answers()
    answers: dict[OrganelleId, list[RememberedAnswer]] = defaultdict(list)
    if accepted and count:
        for place in turn.draw("replay").integers(len(accepted), size=count):
            server, answer = accepted[place]
            answers[server].append(answer)
    return answers


def _remember_cells(outcomes: Sequence[Outcome], turn: Turn) -> None:
    """The newest right answers of each cell, one for a prompt; reference answers where the rule
    sees them."""
    if not turn.learning_rule.replay:
        return
    right: dict[str, list[RememberedAnswer]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.assignment.is_learned_from:
            continue
        cell = cell_name(outcome.assignment.cell)
        right[cell] += [_remembered(r, turn) for r in outcome.rollouts if r.is_right]
        if turn.learning_rule.sees_gold:
            right[cell] += _references(outcome.assignment, turn)
    for cell, answers in right.items():
        by_prompt = {a.prompt: a for a in (*turn.state.memory.get(cell, ()), *answers)}
        turn.state.memory[cell] = tuple(by_prompt.values())[-MOST_OF_CELL:]


def _widen_ranges(outcomes: Sequence[Outcome], turn: Turn) -> None:
    """Everyone has met the prompts of its practice."""
    for organelle_id, practice in practice_of(outcomes).items():
        organelle = turn.state.population[organelle_id]
        items = [item for outcome in practice for item in outcome.assignment.items]
        prompts = [last_turn(item.prompt) for item in items]
        turn.state.population[organelle_id] = replace(
            organelle, range=organelle.range.after(prompts)
        )


def _references(assignment: Assignment, turn: Turn) -> list[RememberedAnswer]:
    """The reference answers of an assignment, as if they had been given."""
    ids = turn.host.encode_answers([item.answer for item in assignment.items])
    return [
        RememberedAnswer(item.family, item.depth, item.prompt, tokens, is_accepted=True)
        for item, tokens in zip(assignment.items, ids, strict=True)
    ]


def _remembered(rollout: Rollout, turn: Turn) -> RememberedAnswer:
    item = rollout.item
    if item.habitat and turn.tasks.families[item.family].is_open:
        confidence = turn.state.record(rollout.organelle_id, but_for=item.habitat)
    else:
        sum_of_all = float(rollout.log_probabilities.sum())
        confidence = math.exp(min(sum_of_all, 0.0)) if math.isfinite(sum_of_all) else 0.0
    return RememberedAnswer(
        item.family,
        item.depth,
        item.prompt,
        rollout.answer_ids,
        is_accepted=rollout.is_right,
        organelle_id=rollout.organelle_id,
        confidence=confidence,
        reply=rollout.text if item.habitat else "",
    )


def _keep_memories(habitat: Habitat, turn: Turn) -> None:
    """A habitat changed: its server remembers what it had accepted."""
    population = turn.state.population
    if habitat.server in population:
        server = population[habitat.server]
        population[server.id] = server.remembering(habitat.accepted)


def _score(names: Iterable[str], turn: Turn) -> None:
    """The losses of everyone alive on the newest accepted answers of some habitats; none of one
    that accepted nothing since it began or changed."""
    state, count = turn.state, turn.strategy.scored_answers
    answers = {name: state.habitats[name].accepted[-count:] for name in names}
    pairs = [(name, answer) for name, newest in answers.items() for answer in newest]
    losses: dict[str, dict[OrganelleId, float]] = {name: {} for name in answers}
    for slots in waves(set(state.population), turn.host.slots) if pairs else ():
        for organelle_id, slot in slots.items():
            turn.host.place(slot, turn.store.weights(state.genome(organelle_id).weights))
        rows = [
            (name, answer, reader, slot) for name, answer in pairs for reader, slot in slots.items()
        ]
        scores = turn.host.score(
            [answer.prompt for _, answer, _, _ in rows],
            [answer.token_ids for _, answer, _, _ in rows],
            [slot for *_, slot in rows],
        )
        for (name, _, reader, _), values in zip(rows, scores, strict=True):
            loss = -float(np.asarray(values).sum()) / len(answers[name])
            total = losses[name].get(reader, 0.0) + loss
            losses[name][reader] = total if math.isfinite(total) else WORST_LOSS
        prompts = turn.host.encode([answer.prompt for _, answer in pairs])
        parameters = turn.host.layout.size(turn.rank)
        for (_, answer), prompt in zip(pairs, prompts, strict=True):
            read, written = len(prompt), len(answer.token_ids)
            flops = len(slots) * turn.host.shape.scoring_flops(parameters, read, written)
            state.spent += Cost.computed(flops, read, written)
        state.spent += Cost(calls=1)
        state.scored += len(rows)
    for name, by_organelle in losses.items():
        state.habitats[name] = replace(state.habitats[name], losses=by_organelle)


def _with_vectors(rollouts: Sequence[Rollout], turn: Turn) -> list[RememberedAnswer]:
    """The answers with what says who wants what: coordinates if there are bases, or sketches."""
    answers, state = [_remembered(rollout, turn) for rollout in rollouts], turn.state
    state.scored += len(answers)
    if state.bases:
        bases = {family: Basis.read(text) for family, text in state.bases.items()}
        return [
            answer.located(bases[answer.family].coordinates(embedding))
            for answer, embedding in zip(answers, embedded(answers, turn), strict=True)
        ]
    common = {family: read_vector(text) for family, text in state.common.items()}
    return [
        answer.sketched(sketch - common.get(answer.family, 0.0))
        for answer, sketch in zip(answers, sketched(answers, turn), strict=True)
    ]


def sketched(answers: Sequence[RememberedAnswer], turn: Turn) -> np.ndarray:
    """What each answer would teach the bare host, ``(answers, dimensions)``, charged to the budget:
    a pass forward and one backward."""
    parameters, shape = turn.host.layout.size(turn.rank), turn.host.shape
    _charge(answers, turn, lambda read, said: shape.sketching_flops(parameters, read, said))
    return turn.host.sketch(*_texts(answers))


def embedded(answers: Sequence[RememberedAnswer], turn: Turn) -> np.ndarray:
    """What the bare host makes of each answer, ``(answers, dimensions)``, charged to the budget: a
    pass forward."""
    shape = turn.host.shape
    _charge(answers, turn, lambda read, said: shape.embedding_flops(read + said))
    return turn.host.embed(*_texts(answers))


def _charge(
    answers: Sequence[RememberedAnswer], turn: Turn, flops: Callable[[int, int], int]
) -> None:
    """One call that reads these answers; ``flops`` are those of a prompt and an answer of so many
    tokens."""
    prompts = turn.host.encode([answer.prompt for answer in answers])
    for prompt, answer in zip(prompts, answers, strict=True):
        read, said = len(prompt), len(answer.token_ids)
        turn.state.spent += Cost.computed(flops(read, said), read, said)
    turn.state.spent += Cost(calls=1)


def _texts(answers: Sequence[RememberedAnswer]) -> tuple[list[str], list[tuple[int, ...]]]:
    return [answer.prompt for answer in answers], [answer.token_ids for answer in answers]
