"""Asking the population: one batched call for each wave of slots, in training and in evaluation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

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
from symbiont_ecology.ecology.learning.rewards import rewarded
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
    """A question in a wave: its place among all questions, the request that it makes, and the rank
    of the adapter that answers (0: the bare host)."""

    place: int
    question: Question
    request: Request
    rank: int


def act(assignments: Sequence[Assignment], context: GenerationContext) -> list[Outcome]:
    """Roll out and judge every assignment, and charge the budget; outcomes in their order."""
    state = context.state

    def weights_of(organelle_id: OrganelleId) -> AdapterWeights:
        return context.store.weights(state.genome(organelle_id).weights)

    questions, rule, users = (
        _questions(assignments, context),
        context.learning_rule,
        context.tasks.users,
    )
    # Who serves whom is known then, so nobody asks how sure an organelle is of a logged reply.
    reads_logged = rule.needs_log_probabilities or not (users and users.groups)
    rollouts, calls = roll_out(
        questions,
        context.host,
        weights_of,
        context.practice,
        rule.estimator,
        reads_logged=reads_logged,
    )
    state.spent += sum((rollout.cost for rollout in rollouts), Cost(calls=calls))
    outcomes, start = list[Outcome](), 0
    for assignment in assignments:
        end = start + len(assignment.items) * assignment.samples
        outcomes.append(Outcome(assignment, tuple(rollouts[start:end])))
        start = end
    reward, faults = context.reward, context.faults
    outcomes = map_rollouts(
        outcomes, lambda own: rewarded(own, reward, faults), where=attrgetter("is_practice")
    )
    return map_rollouts(
        outcomes, lambda own: _compared(own, context), where=attrgetter("is_compared")
    )


def _questions(assignments: Sequence[Assignment], context: GenerationContext) -> list[Question]:
    """Return the questions of all assignments. Practice explores; everything else is answered as it
    would be in use, greedily. Where the reward is about reference answers, practice reads them and
    nobody replies. Users who ask one organelle the same have draws of their own."""
    questions, asked = list[Question](), Counter[tuple[object, ...]]()
    for assignment in assignments:
        name, purpose = assignment.organelle_id, assignment.purpose
        reads = assignment.is_practice and context.reward.reads
        for index, item in enumerate(assignment.items):
            identity = name, purpose, item.id, index
            earlier = [asked[identity]] if asked[identity] else []
            asked[identity] += 1
            for sample in range(assignment.samples):
                key = ("rollout", name, purpose, item.id, index, sample, *earlier)
                generator = context.draw(*key) if assignment.is_learned_from else None
                put = item.to_read if reads else item
                questions.append(Question(put, name, generator, assignment.perturbation))
    return questions


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
    *,
    reads_logged: bool = True,
) -> tuple[list[Rollout], int]:
    """Answer and judge every question, in their order; also return the number of calls of the host.

    This is the one way to ask a population. The bare host needs no slot. An estimator answers in
    the host's place, and notes what it learns from (``Rollout.extra``). Where an item has a logged
    reply, nobody is asked, and the organelle reads that, unless ``reads_logged`` is false: then its
    log-probabilities are not numbers.
    """
    rollouts, calls = dict[int, Rollout](), 0
    new = {place: one for place, one in enumerate(questions) if one.item.logged is None}
    for wave in _waves_of_rows(new, host, weights_of):
        calls += 1
        rollouts |= _answered(wave, host, decoding, estimator)
    logged = {place: one for place, one in enumerate(questions) if one.item.logged}
    for wave in _waves_of_rows(logged, host, weights_of):
        read, reading_calls = _read(wave, host, is_needed=reads_logged)
        calls += reading_calls
        rollouts |= read
    return [rollouts[place] for place in range(len(questions))], calls


def _answered(
    wave: Sequence[_Row], host: Host, decoding: Decoding, estimator: Estimator | None
) -> dict[int, Rollout]:
    """Return judged answers to the questions of a wave, by their places."""
    requests = [row.request for row in wave]
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
    rollouts = {}
    for row, one, judgement, extra in zip(wave, done, judgements, extras, strict=True):
        parameters, read, written = host.layout.size(row.rank), one.prompt_tokens, one.token_ids
        useful = host.shape.rollout_flops(parameters, read, len(written))
        executed = host.shape.executed_flops(parameters, read, one.tokens_read, one.steps)
        rollouts[row.place] = Rollout(
            row.question.item,
            row.question.organelle_id,
            one.token_ids,
            one.log_probabilities,
            one.text,
            verdict=judgement.verdict,
            reward=judgement.verdict,
            cost=Cost(read, len(written), rows=1, flops=useful, executed=executed),
            fault=judgement.fault,
            ended_ids=ended.get(one.text) if one.is_stopped else None,
            extra=extra,
        )
    return rollouts


def _read(wave: Sequence[_Row], host: Host, *, is_needed: bool) -> tuple[dict[int, Rollout], int]:
    """Return replies that were given and judged in the past, by the places of their questions, and
    the number of calls of the host.

    Each organelle reads the replies to its questions: their log-probabilities are its own, as if it
    had given them. It need not read what it gave itself and was as sure of as the log says: then
    each token has an equal part of that.
    """
    replies = [row.question.item.logged for row in wave if row.question.item.logged]
    answers = host.encode_answers([reply.text for reply in replies])
    prompts = [row.request.prompt for row in wave]
    scores, unread = dict[int, np.ndarray](), list[int]()
    for number, (row, reply, ids) in enumerate(zip(wave, replies, answers, strict=True)):
        if reply.log_probability is not None and row.question.respondent == reply.author:
            scores[number] = np.full(len(ids), reply.log_probability / len(ids))
        elif not is_needed:
            scores[number] = np.full(len(ids), np.nan)
        else:
            unread.append(number)
    if unread:
        values = host.score(
            [prompts[number] for number in unread],
            [answers[number] for number in unread],
            [wave[number].request.slot for number in unread],
        )
        scores |= dict(zip(unread, map(np.asarray, values), strict=True))
    ranks, rollouts = [row.rank for row in wave], {}
    costs = costs_of(prompts, answers, host, host.shape.scoring_flops, ranks)
    for number, (row, reply, cost) in enumerate(zip(wave, replies, costs, strict=True)):
        verdict = float(bool(reply.is_accepted))
        rollouts[row.place] = Rollout(
            row.question.item,
            row.question.organelle_id,
            answers[number],
            scores[number],
            reply.text,
            verdict=verdict,
            reward=verdict,
            cost=cost if number in unread else replace(cost, executed=0),
        )
    return rollouts, int(bool(unread))


def _waves_of_rows(
    questions: Mapping[int, Question], host: Host, weights_of: WeightsOf
) -> Iterator[list[_Row]]:
    """Put everyone who has a question into slots, wave by wave, and yield the questions of each
    wave, which come by their places. Noise is made when its slot is filled, and not kept."""
    asked = {question.respondent: question for question in questions.values()}
    for wave in waves(set(asked), host.slots):
        placed = dict.fromkeys(wave, (HOST_SLOT, 0, ""))
        for name, slot in wave.items():
            if slot != HOST_SLOT:
                weights, noise = weights_of(asked[name].organelle_id), asked[name].perturbation
                weights = noise.of(weights, host.norms) if noise else weights
                host.place(slot, weights)
                placed[name] = slot, weights.rank, weights.phrase
        rows = []
        for place, question in questions.items():
            if question.respondent in placed:
                slot, rank, phrase = placed[question.respondent]
                prompt = prepend_phrase(phrase, question.item.prompt)
                request = Request(prompt, slot, question.item.reply_limit)
                rows.append(_Row(place, question, request, rank))
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
