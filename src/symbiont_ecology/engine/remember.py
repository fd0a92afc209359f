"""What habitats remember: the last answers that each was given, with their verdicts.

Learning replays those that were accepted, so that nothing is forgotten and little is asked twice.
Their sketches say which habitats want the same (``host.sketches``).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from symbiont_ecology.ecology import Habitat, Outcome, RememberedAnswer, Rollout
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.types import OrganelleId

YOUNG = 12
"""Remembered answers below which refused ones are sketched, too: then a habitat is known well."""


def remember(outcomes: Sequence[Outcome], turn: Turn) -> None:
    """Every habitat remembers what it was answered in practice, in the order of asking."""
    habitats = turn.state.habitats
    rollouts = [
        rollout
        for outcome in outcomes
        if outcome.assignment.purpose == "practice"
        for rollout in outcome.rollouts
        if rollout.item.habitat and rollout.token_ids
    ]
    answers = [_remembered(rollout) for rollout in rollouts]
    if turn.strategy.needs_sketches:
        answers = _sketched(rollouts, answers, turn)
    for rollout, answer in zip(rollouts, answers, strict=True):
        name = rollout.item.habitat
        confidence = math.exp(min(float(rollout.log_probabilities.sum()), 0.0))
        before = habitats.get(name, Habitat())
        habitats[name] = before.after(rollout.organelle_id, answer, confidence)


def replayed(
    outcomes: Sequence[Outcome], turn: Turn
) -> Mapping[OrganelleId, Sequence[RememberedAnswer]]:
    """Accepted answers to learn again, drawn from all habitats, for those who serve them.

    There are ``learning_rule.replay`` of them for each rollout of practice.
    """
    practice = [outcome for outcome in outcomes if outcome.assignment.purpose == "practice"]
    count = round(turn.learning_rule.replay * sum(len(outcome.rollouts) for outcome in practice))
    known = turn.state.accepted_answers()
    answers: dict[OrganelleId, list[RememberedAnswer]] = defaultdict(list)
    if known and count:
        for place in turn.draw("replay").integers(len(known), size=count):
            server, answer = known[place]
            answers[server].append(answer)
    return answers


def _known(rollout: Rollout, turn: Turn) -> Habitat:
    return turn.state.habitats.get(rollout.item.habitat, Habitat())


def _remembered(rollout: Rollout) -> RememberedAnswer:
    item = rollout.item
    return RememberedAnswer(
        item.family, item.depth, item.prompt, rollout.token_ids, is_accepted=rollout.verdict > 0.5
    )


def _sketched(
    rollouts: Sequence[Rollout], answers: Sequence[RememberedAnswer], turn: Turn
) -> list[RememberedAnswer]:
    """The answers, those that say something new with their sketches. It costs a pass each way."""
    state, shape = turn.state, turn.host.shape
    told = [
        answer.is_accepted or len(_known(rollout, turn).answers) < YOUNG
        for rollout, answer in zip(rollouts, answers, strict=True)
    ]
    chosen = [answer for answer, is_told in zip(answers, told, strict=True) if is_told]
    if not chosen:
        return list(answers)
    sketches = turn.host.sketch(
        [answer.prompt for answer in chosen], [answer.token_ids for answer in chosen]
    )
    parameters = turn.host.layout.size(turn.rank)
    for rollout, is_told in zip(rollouts, told, strict=True):
        if is_told:
            read, written = rollout.cost.tokens_in, rollout.cost.tokens_out
            flops = shape.learning_flops(parameters, read, written)
            state.spent += Cost(read, written, flops=flops, executed=flops)
    state.spent += Cost(calls=1)
    rows = iter(sketches)
    return [
        answer.sketched(next(rows)) if is_told else answer
        for answer, is_told in zip(answers, told, strict=True)
    ]
