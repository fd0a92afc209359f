"""Asking the population: one batched call for each wave of slots, in training and in evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter

import numpy as np

from symbiont_ecology.ecology import HOST, Assignment, Outcome, Rollout, map_rollouts
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.runtime import Host, Turn
from symbiont_ecology.learning.rewards import worths
from symbiont_ecology.tasks import judge
from symbiont_ecology.types import (
    HOST_SLOT,
    Completion,
    Completions,
    Decoding,
    Item,
    LoggedReply,
    OrganelleId,
    Request,
    behind,
)
from symbiont_ecology.weights import AdapterWeights
from symbiont_ecology.weights.perturbations import Perturbation

WeightsOf = Callable[[OrganelleId], AdapterWeights]
Respondent = tuple[OrganelleId, Perturbation | None]
"""An organelle, and the noise on it if there is any: what takes a slot."""


@dataclass(frozen=True)
class Question:
    """An item put to an organelle, or to what it is with some noise on it; without a generator it
    is answered greedily."""

    item: Item
    organelle_id: OrganelleId
    generator: np.random.Generator | None = None
    perturbation: Perturbation | None = None

    @property
    def respondent(self) -> Respondent:
        """Who answers, with whose weights."""
        return self.organelle_id, self.perturbation


_Entry = tuple[int, Question, str]
"""A question with its place, and the prompt that is put to who answers."""


def roll_out(
    questions: Sequence[Question], host: Host, weights_of: WeightsOf, decoding: Decoding
) -> tuple[list[Rollout], int]:
    """Answers and judges every question, in their order; also how many calls of the host it took.

    This is the one way to ask a population. The bare host needs no slot.
    """
    rollouts, calls = dict[int, Rollout](), 0
    for slots, ranks, wave in _placed(questions, host, weights_of):
        calls += 1
        requests = [
            Request(prompt, slots[question.respondent], question.item.reply_limit)
            for _, question, prompt in wave
        ]
        generators = [question.generator for _, question, _ in wave]
        completions = host.rollout(requests, generators, decoding)
        items = [question.item for _, question, _ in wave]
        judgements = judge(zip(items, completions.texts, strict=True))
        ended = _ended(completions, host)
        for row, (index, question, _) in enumerate(wave):
            completion, judgement = completions[row], judgements[row]
            rollouts[index] = Rollout(
                item=question.item,
                organelle_id=question.organelle_id,
                token_ids=completion.token_ids,
                log_probabilities=completion.log_probabilities,
                text=completion.text,
                verdict=judgement.verdict,
                reward=judgement.verdict,
                cost=completion_cost(completion, host, ranks[question.respondent]),
                fault=judgement.fault,
                trace=completion.trace,
                ended_ids=ended.get(completion.text) if completion.is_stopped else None,
            )
    return [rollouts[index] for index in range(len(questions))], calls


def act(assignments: Sequence[Assignment], turn: Turn) -> list[Outcome]:
    """Rolls out and judges every assignment, and charges the budget; outcomes in their order."""
    asked = Counter[tuple[object, ...]]()
    questions = [
        question for assignment in assignments for question in _samples(assignment, turn, asked)
    ]

    def weights_of(organelle_id: OrganelleId) -> AdapterWeights:
        """As they are at the start of the generation."""
        return turn.store.weights(turn.state.genome(organelle_id).weights)

    new = [question for question in questions if question.item.logged is None]
    logged = [question for question in questions if question.item.logged]
    answers, calls = roll_out(new, turn.host, weights_of, turn.practice)
    read, reading_calls = read_log(logged, turn.host, weights_of)
    cost = Cost(calls=calls + reading_calls)
    turn.state.spent += sum((rollout.cost for rollout in (*answers, *read)), cost)
    from_log, fresh = iter(read), iter(answers)
    rollouts = iter([next(from_log if question.item.logged else fresh) for question in questions])
    outcomes = [
        Outcome(assignment, tuple(islice(rollouts, len(assignment.items) * assignment.samples)))
        for assignment in assignments
    ]
    return map_rollouts(
        _rewarded(outcomes, turn), partial(_compared, turn=turn), where=attrgetter("is_compared")
    )


def _rewarded(outcomes: Sequence[Outcome], turn: Turn) -> list[Outcome]:
    """Return the same outcomes, each rollout of practice with what it is worth to learning."""

    def rewarded(rollouts: Sequence[Rollout]) -> Iterator[Rollout]:
        """Each with its reward."""
        rewards = worths(rollouts, turn.reward, turn.faults)
        for rollout, worth in zip(rollouts, rewards, strict=True):
            yield replace(rollout, reward=worth)

    return map_rollouts(outcomes, rewarded, where=attrgetter("is_practice"))


def _compared(rollouts: Sequence[Rollout], turn: Turn) -> Iterator[Rollout]:
    """The same rollouts, read by the host; what that took is part of what each answer took."""
    costs = reading_costs(rollouts, turn.host)
    for rollout, reading in zip(read_by_host(rollouts, turn), costs, strict=True):
        more = Cost(flops=reading.flops, executed=reading.executed)  # on the same tokens
        yield replace(rollout, cost=rollout.cost + more)


def read_by_host(rollouts: Sequence[Rollout], turn: Turn) -> list[Rollout]:
    """The same rollouts, each with the bare host's log-probabilities of its tokens.

    One call scores all answers, and the budget is charged.
    """
    if not rollouts:
        return []
    prompts = [rollout.item.prompt for rollout in rollouts]
    answers = [rollout.token_ids for rollout in rollouts]
    scores = turn.host.score(prompts, answers, [HOST_SLOT] * len(rollouts))
    turn.state.spent += sum(reading_costs(rollouts, turn.host), Cost(calls=1))
    return [
        replace(rollout, host_log_probabilities=np.asarray(values))
        for rollout, values in zip(rollouts, scores, strict=True)
    ]


def reading_costs(rollouts: Sequence[Rollout], host: Host) -> list[Cost]:
    """What the bare host's log-probabilities of each rollout take. It reads the question without
    the phrase of who answered."""
    prompts = host.encode([rollout.item.prompt for rollout in rollouts])
    tokens = [
        (len(prompt), rollout.cost.tokens_out)
        for prompt, rollout in zip(prompts, rollouts, strict=True)
    ]
    return [
        Cost.computed(host.shape.scoring_flops(0, read, written), read, written)
        for read, written in tokens
    ]


def read_log(
    questions: Sequence[Question], host: Host, weights_of: WeightsOf
) -> tuple[list[Rollout], int]:
    """Replies that were given and judged in the past, in their order; also how many calls of the
    host it took.

    Nobody is asked. Each organelle reads the replies to its questions: their log-probabilities are
    its own, as if it had given them. It need not read what it gave itself and was as sure of as
    the log says: then each token has an equal part of that.
    """
    rollouts, calls = dict[int, Rollout](), 0
    for slots, ranks, wave in _placed(questions, host, weights_of):
        replies = [_logged(question.item) for _, question, _ in wave]
        prompts = [prompt for *_, prompt in wave]
        completions = host.encode_answers([reply.text for reply in replies])
        scores = {
            row: np.full(len(completions[row]), reply.log_probability / len(completions[row]))
            for row, (reply, (_, question, _)) in enumerate(zip(replies, wave, strict=True))
            if reply.log_probability is not None and question.respondent == (reply.author, None)
        }
        given = set(scores)
        if unread := [row for row in range(len(wave)) if row not in given]:
            calls += 1
            values = host.score(
                [prompts[row] for row in unread],
                [completions[row] for row in unread],
                [slots[wave[row][1].respondent] for row in unread],
            )
            scores |= {row: np.asarray(part) for row, part in zip(unread, values, strict=True)}
        lengths = [len(prompt) for prompt in host.encode(prompts)]
        for row, (index, question, _) in enumerate(wave):
            parameters = host.layout.size(ranks[question.respondent])
            read, written = lengths[row], len(completions[row])
            cost = Cost.computed(host.shape.scoring_flops(parameters, read, written), read, written)
            verdict = float(bool(replies[row].is_accepted))
            rollouts[index] = Rollout(
                item=question.item,
                organelle_id=question.organelle_id,
                token_ids=completions[row],
                log_probabilities=scores[row],
                text=replies[row].text,
                verdict=verdict,
                reward=verdict,
                cost=replace(cost, executed=0) if row in given else cost,
            )
    return [rollouts[index] for index in range(len(questions))], calls


def _ended(completions: Completions, host: Host) -> Mapping[str, tuple[int, ...]]:
    """Token ids of the texts that a stop text cut, end of answer included."""
    if completions.stopped is None or not completions.stopped.any():
        return {}
    pairs = zip(completions.texts, completions.stopped, strict=True)
    texts = list(dict.fromkeys(text for text, is_stopped in pairs if is_stopped))
    return dict(zip(texts, host.encode_answers(texts), strict=True))


def _placed(
    questions: Sequence[Question], host: Host, weights_of: WeightsOf
) -> Iterator[tuple[Mapping[Respondent, int], Mapping[Respondent, int], list[_Entry]]]:
    """Puts everyone who has a question into slots, wave by wave: slots and ranks by who answers,
    and the questions with their places and prompts. Noise is made when its slot is filled, and not
    kept."""
    respondents = {_name(question.respondent): question.respondent for question in questions}
    for wave in waves(set(respondents), host.slots):
        slots = {respondents[name]: slot for name, slot in wave.items()}
        ranks: dict[Respondent, int] = {(HOST, None): 0}
        phrases = dict[Respondent, str]()
        for (organelle_id, perturbation), slot in slots.items():
            if organelle_id == HOST:
                continue
            weights = weights_of(organelle_id)
            if perturbation:
                weights = perturbation.of(weights, host.norms)
            host.place(slot, weights)
            ranks[organelle_id, perturbation] = weights.rank
            phrases[organelle_id, perturbation] = weights.phrase
        entries = [
            (place, question, behind(phrases.get(question.respondent, ""), question.item.prompt))
            for place, question in enumerate(questions)
            if question.respondent in slots
        ]
        yield slots, ranks, entries


def _name(respondent: Respondent) -> str:
    """What orders who answers: the organelle, and the noise on it."""
    organelle_id, noise = respondent
    return f"{organelle_id} {noise.seed} {noise.size}" if noise else organelle_id


def _logged(item: Item) -> LoggedReply:
    assert item.logged is not None
    return item.logged


def waves(organelle_ids: set[OrganelleId], slots: int) -> Iterator[Mapping[OrganelleId, int]]:
    """Slots for everyone, in waves of at most ``slots`` organelles, by sorted id.

    The host goes with the first wave.
    """
    organelles = sorted(organelle_ids - {HOST})
    for start in range(0, max(len(organelles), 1), slots):
        wave = {name: slot for slot, name in enumerate(organelles[start : start + slots])}
        if start == 0 and HOST in organelle_ids:
            wave[HOST] = HOST_SLOT
        if wave:
            yield wave


def completion_cost(completion: Completion, host: Host, rank: int) -> Cost:
    """What one answer took, by an adapter of that rank (0: the bare host)."""
    shape, parameters = host.shape, host.layout.size(rank)
    read, written = completion.prompt_tokens, len(completion.token_ids)
    useful = shape.rollout_flops(parameters, read, written)
    executed = shape.executed_flops(parameters, read, completion.tokens_read, completion.steps)
    return Cost(read, written, rows=1, flops=useful, executed=executed)


def _samples(
    assignment: Assignment, turn: Turn, asked: Counter[tuple[object, ...]]
) -> Iterator[Question]:
    """Practice explores; everything else is answered as it would be in use, greedily. Where the
    reward is about reference answers, practice reads them and nobody replies. ``asked`` counts who
    was asked what: users who ask one organelle the same have draws of their own."""
    name, purpose, noise = assignment.organelle_id, assignment.purpose, assignment.perturbation
    explores = assignment.is_learned_from
    reads = purpose == "practice" and turn.reward.reads
    for index, item in enumerate(assignment.items):
        question = name, purpose, item.id, index
        earlier = [asked[question]] if asked[question] else []
        asked[question] += 1
        for sample in range(assignment.samples):
            key = ("rollout", name, purpose, item.id, index, sample, *earlier)
            generator = turn.draw(*key) if explores else None
            yield Question(item.to_read if reads else item, name, generator, noise)
