"""Asking the population: one batched call for each wave of slots, in training and in evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.adapter import Perturbation
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Decoding,
    Item,
    OrganelleId,
    Request,
    prepend_phrase,
)
from symbiont_ecology.ecology import HOST, Assignment, Outcome, Rollout, map_rollouts
from symbiont_ecology.ecology.learning import Estimator
from symbiont_ecology.ecology.learning.rewards import worths
from symbiont_ecology.run.runtime import GenerationContext, Host
from symbiont_ecology.tasks import judge

WeightsOf = Callable[[OrganelleId], AdapterWeights]


@dataclass(frozen=True)
class Question:
    """An item put to an organelle, or to what it is with some noise on it; without a generator it
    is answered greedily."""

    item: Item
    organelle_id: OrganelleId
    generator: np.random.Generator | None = None
    perturbation: Perturbation | None = None

    @property
    def respondent(self) -> str:
        """The organelle and the noise on it: what takes a slot, in the order of names."""
        noise = self.perturbation
        return f"{self.organelle_id} {noise}" if noise else self.organelle_id


@dataclass(frozen=True)
class _Row:
    """A question in a wave: its place among all questions, the prompt as it is put, and the slot
    and rank of the adapter that answers (0: the bare host)."""

    place: int
    question: Question
    prompt: str
    slot: int
    rank: int

    def rollout(self, text: str, ids: tuple[int, ...], verdict: float, **facts: Any) -> Rollout:
        """Return the rollout of its answer."""
        item, who = self.question.item, self.question.organelle_id
        return Rollout(
            item, who, token_ids=ids, text=text, verdict=verdict, reward=verdict, **facts
        )


def act(assignments: Sequence[Assignment], context: GenerationContext) -> list[Outcome]:
    """Roll out and judge every assignment, and charge the budget; outcomes in their order."""
    host, state, asked = context.host, context.state, Counter[tuple[object, ...]]()
    questions = [one for assignment in assignments for one in _samples(assignment, context, asked)]

    def weights_of(organelle_id: OrganelleId) -> AdapterWeights:
        return context.store.weights(state.genome(organelle_id).weights)

    new = [question for question in questions if question.item.logged is None]
    logged = [question for question in questions if question.item.logged]
    estimator = context.learning_rule.estimator
    answers, calls = roll_out(new, host, weights_of, context.practice, estimator)
    read, reading_calls = read_log(logged, host, weights_of)
    cost = Cost(calls=calls + reading_calls)
    state.spent += sum((rollout.cost for rollout in (*answers, *read)), cost)
    from_log, fresh = iter(read), iter(answers)
    rollouts = iter([next(from_log if question.item.logged else fresh) for question in questions])
    outcomes = [
        Outcome(assignment, tuple(islice(rollouts, len(assignment.items) * assignment.samples)))
        for assignment in assignments
    ]
    rewarded, compared = partial(_rewarded, context=context), partial(_compared, context=context)
    outcomes = map_rollouts(outcomes, rewarded, where=attrgetter("is_practice"))
    return map_rollouts(outcomes, compared, where=attrgetter("is_compared"))


def _samples(
    assignment: Assignment, context: GenerationContext, asked: Counter[tuple[object, ...]]
) -> Iterator[Question]:
    """Yield the questions of an assignment. Practice explores; everything else is answered as it
    would be in use, greedily. Where the reward is about reference answers, practice reads them and
    nobody replies. ``asked`` counts who was asked what: users who ask one organelle the same have
    draws of their own."""
    name, purpose, noise = assignment.organelle_id, assignment.purpose, assignment.perturbation
    reads = assignment.is_practice and context.reward.reads
    for index, item in enumerate(assignment.items):
        question = name, purpose, item.id, index
        earlier = [asked[question]] if asked[question] else []
        asked[question] += 1
        for sample in range(assignment.samples):
            key = ("rollout", name, purpose, item.id, index, sample, *earlier)
            generator = context.draw(*key) if assignment.is_learned_from else None
            yield Question(item.to_read if reads else item, name, generator, noise)


def _rewarded(rollouts: Sequence[Rollout], context: GenerationContext) -> Iterator[Rollout]:
    """Yield the same rollouts with what they are worth to learning."""
    rewards = worths(rollouts, context.reward, context.faults)
    for rollout, worth in zip(rollouts, rewards, strict=True):
        yield replace(rollout, reward=worth)


def _compared(rollouts: Sequence[Rollout], context: GenerationContext) -> Iterator[Rollout]:
    """Yield the same rollouts, read by the host; what that took is part of what each answer took,
    on the same tokens."""
    costs = reading_costs(rollouts, context.host)
    for rollout, reading in zip(read_by_host(rollouts, context), costs, strict=True):
        more = Cost(flops=reading.flops, executed=reading.executed)
        yield replace(rollout, cost=rollout.cost + more)


def read_by_host(rollouts: Sequence[Rollout], context: GenerationContext) -> list[Rollout]:
    """Return the same rollouts, each with the bare host's log-probabilities of its tokens.

    One call scores all answers, and the budget is charged.
    """
    if not rollouts:
        return []
    prompts = [rollout.item.prompt for rollout in rollouts]
    answers = [rollout.token_ids for rollout in rollouts]
    scores = context.host.score(prompts, answers, [HOST_SLOT] * len(rollouts))
    context.state.spent += sum(reading_costs(rollouts, context.host), Cost(calls=1))
    return [
        replace(rollout, host_log_probabilities=np.asarray(values))
        for rollout, values in zip(rollouts, scores, strict=True)
    ]


def reading_costs(rollouts: Sequence[Rollout], host: Host) -> list[Cost]:
    """Return what the bare host's log-probabilities of each rollout take. It reads the question
    without the phrase of who answered."""
    prompts = [rollout.item.prompt for rollout in rollouts]
    answers = [rollout.token_ids for rollout in rollouts]
    return costs_of(prompts, answers, host, host.shape.scoring_flops)


def costs_of(
    prompts: Sequence[str],
    answers: Sequence[Sequence[int]],
    host: Host,
    flops: Callable[[int, int, int], int],
    ranks: Sequence[int] | int = 0,
) -> list[Cost]:
    """Return what one pass over each prompt and its answer takes, by adapters of these ranks.

    ``flops`` are those of an adapter's parameters, the prompt's tokens and the answer's tokens.
    """
    unique = list(dict.fromkeys(prompts))
    lengths = dict(zip(unique, map(len, host.encode(unique)), strict=True))
    ranks = [ranks] * len(prompts) if isinstance(ranks, int) else ranks
    sizes = [
        (host.layout.size(rank), lengths[prompt], len(answer))
        for prompt, answer, rank in zip(prompts, answers, ranks, strict=True)
    ]
    return [Cost.computed(flops(*size), *size[1:]) for size in sizes]


def roll_out(
    questions: Sequence[Question],
    host: Host,
    weights_of: WeightsOf,
    decoding: Decoding,
    estimator: Estimator | None = None,
) -> tuple[list[Rollout], int]:
    """Answer and judge every question, in their order; also return the number of calls of the host.

    This is the one way to ask a population. The bare host needs no slot. An estimator answers in
    the host's place, and notes what it learns from (``Rollout.extra``).
    """
    rollouts, calls = dict[int, Rollout](), 0
    for wave in _waves_of_rows(questions, host, weights_of):
        calls += 1
        requests = [Request(row.prompt, row.slot, row.question.item.reply_limit) for row in wave]
        generators = [row.question.generator for row in wave]
        extras: Sequence[object] = [None] * len(wave)
        if estimator is None:
            completions = host.rollout(requests, generators, decoding)
        else:
            completions, extras = estimator.rollout(host, requests, generators, decoding)
        items = [row.question.item for row in wave]
        judgements = judge(zip(items, completions.texts, strict=True))
        done = [completions[number] for number in range(len(wave))]
        # Texts that a stop text cut, as an answer that ends.
        cut = list(dict.fromkeys(one.text for one in done if one.is_stopped))
        ended = dict(zip(cut, host.encode_answers(cut), strict=True)) if cut else {}
        for row, one, judgement, extra in zip(wave, done, judgements, extras, strict=True):
            parameters, read, written = host.layout.size(row.rank), one.prompt_tokens, one.token_ids
            useful = host.shape.rollout_flops(parameters, read, len(written))
            executed = host.shape.executed_flops(parameters, read, one.tokens_read, one.steps)
            rollouts[row.place] = row.rollout(
                one.text,
                one.token_ids,
                judgement.verdict,
                log_probabilities=one.log_probabilities,
                cost=Cost(read, len(written), rows=1, flops=useful, executed=executed),
                fault=judgement.fault,
                ended_ids=ended.get(one.text) if one.is_stopped else None,
                extra=extra,
            )
    return [rollouts[place] for place in range(len(questions))], calls


def read_log(
    questions: Sequence[Question], host: Host, weights_of: WeightsOf
) -> tuple[list[Rollout], int]:
    """Return replies that were given and judged in the past, in their order, and the number of
    calls of the host.

    Nobody is asked. Each organelle reads the replies to its questions: their log-probabilities are
    its own, as if it had given them. It need not read what it gave itself and was as sure of as
    the log says: then each token has an equal part of that.
    """
    rollouts, calls = dict[int, Rollout](), 0
    for wave in _waves_of_rows(questions, host, weights_of):
        replies = [row.question.item.logged for row in wave if row.question.item.logged]
        answers = host.encode_answers([reply.text for reply in replies])
        scores = {
            number: np.full(len(ids), reply.log_probability / len(ids))
            for number, (row, reply, ids) in enumerate(zip(wave, replies, answers, strict=True))
            if reply.log_probability is not None and row.question.respondent == reply.author
        }
        known = set(scores)
        if unread := [number for number in range(len(wave)) if number not in known]:
            calls += 1
            values = host.score(
                [wave[number].prompt for number in unread],
                [answers[number] for number in unread],
                [wave[number].slot for number in unread],
            )
            scores |= dict(zip(unread, map(np.asarray, values), strict=True))
        prompts, ranks = [row.prompt for row in wave], [row.rank for row in wave]
        costs = costs_of(prompts, answers, host, host.shape.scoring_flops, ranks)
        for number, (row, reply, cost) in enumerate(zip(wave, replies, costs, strict=True)):
            rollouts[row.place] = row.rollout(
                reply.text,
                answers[number],
                float(bool(reply.is_accepted)),
                log_probabilities=scores[number],
                cost=replace(cost, executed=0) if number in known else cost,
            )
    return [rollouts[place] for place in range(len(questions))], calls


def _waves_of_rows(
    questions: Sequence[Question], host: Host, weights_of: WeightsOf
) -> Iterator[list[_Row]]:
    """Put everyone who has a question into slots, wave by wave, and yield the questions of each
    wave. Noise is made when its slot is filled, and not kept."""
    asked = {question.respondent: question for question in questions}
    for wave in waves(set(asked), host.slots):
        placed = dict.fromkeys(wave, (HOST_SLOT, 0, ""))
        for name, slot in wave.items():
            if slot != HOST_SLOT:
                weights, noise = weights_of(asked[name].organelle_id), asked[name].perturbation
                weights = noise.of(weights, host.norms) if noise else weights
                host.place(slot, weights)
                placed[name] = slot, weights.rank, weights.phrase
        rows = []
        for place, question in enumerate(questions):
            if question.respondent in placed:
                slot, rank, phrase = placed[question.respondent]
                prompt = prepend_phrase(phrase, question.item.prompt)
                rows.append(_Row(place, question, prompt, slot, rank))
        yield rows


def waves(organelle_ids: set[OrganelleId], slots: int) -> Iterator[Mapping[OrganelleId, int]]:
    """Yield slots for everyone, in waves of at most ``slots`` organelles, by sorted id.

    The host goes with the first wave.
    """
    organelles = sorted(organelle_ids - {HOST})
    for start in range(0, max(len(organelles), 1), slots):
        wave = {name: slot for slot, name in enumerate(organelles[start : start + slots])}
        if start == 0 and HOST in organelle_ids:
            wave[HOST] = HOST_SLOT
        if wave:
            yield wave
