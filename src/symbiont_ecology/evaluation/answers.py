"""Asking and grading: every question goes to one organelle, all of them in batched calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import Cost, rollout_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.answer_cache import AnswerCache, CachedAnswer
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.types import Decoding, OrganelleId, Request
from symbiont_ecology.weights import AdapterWeights

QUESTIONS_PER_WRITE = 512
"""Questions between two entries in the book: what a killed evaluation loses at most."""

Progress = Callable[[int], None]
"""Called with the number of questions that were just answered."""


def no_progress(done: int) -> None:
    """Watches nothing."""


@dataclass(frozen=True)
class Answer:
    """A graded reply.

    ``cost`` is what it took, whoever else had to be asked included; ``confidence`` is the mean
    log-probability of its tokens, in nats.
    """

    question: Question
    organelle_id: OrganelleId
    reply: str
    verdict: float
    cost: Cost
    confidence: float = 0.0

    @property
    def flops(self) -> int:
        """Its useful FLOPs."""
        return self.cost.flops


@dataclass(frozen=True)
class Examiner:
    """A host, those who can be asked, and a book of what they answered before.

    The book knows a host by its ``fingerprint``.
    """

    host: Host
    weights: Mapping[OrganelleId, AdapterWeights]
    book: AnswerCache | None = None
    fingerprint: str = ""
    watch: Progress = no_progress

    def ask(self, questions: Sequence[Question], choices: Sequence[OrganelleId]) -> list[Answer]:
        """Greedy replies, graded, in the order of the questions; ``choices`` says who answers
        which."""
        genomes = {
            organelle_id: _genome(self.weights.get(organelle_id)) for organelle_id in set(choices)
        }
        keys = [
            AnswerCache.key(
                self.fingerprint, genomes[organelle_id], question.prompt, question.reply_limit
            )
            for question, organelle_id in zip(questions, choices, strict=True)
        ]
        known = self.book.find(keys) if self.book else {}
        open_ = list({key: index for index, key in enumerate(keys) if key not in known}.values())
        self.watch(len(keys) - len(open_))
        for start in range(0, len(open_), QUESTIONS_PER_WRITE):
            piece = open_[start : start + QUESTIONS_PER_WRITE]
            replies = self._roll_out([questions[i] for i in piece], [choices[i] for i in piece])
            fresh = {keys[index]: reply for index, reply in zip(piece, replies, strict=True)}
            if self.book:
                self.book.add(fresh.items())
            known |= fresh
            self.watch(len(piece))
        return [
            self._graded(question, organelle_id, known[key])
            for question, organelle_id, key in zip(questions, choices, keys, strict=True)
        ]

    def _roll_out(
        self, questions: Sequence[Question], choices: Sequence[OrganelleId]
    ) -> list[CachedAnswer]:
        found: dict[int, CachedAnswer] = {}
        for slots in waves(set(choices), self.host.slots):
            for organelle_id, slot in slots.items():
                if organelle_id != HOST:
                    self.host.place(slot, self.weights[organelle_id])
            chosen = [index for index, organelle_id in enumerate(choices) if organelle_id in slots]
            rows = [
                Request(questions[i].prompt, slots[choices[i]], questions[i].reply_limit)
                for i in chosen
            ]
            rollouts = self.host.rollout(rows, None, Decoding())
            for place, index in enumerate(chosen):
                read, written = int(rollouts.prompt_lengths[place]), int(rollouts.lengths[place])
                found[index] = CachedAnswer(
                    rollouts.texts[place], read, written, rollouts.confidence(place)
                )
        return [found[index] for index in range(len(questions))]

    def _graded(self, question: Question, organelle_id: OrganelleId, reply: CachedAnswer) -> Answer:
        parameters = (
            0 if organelle_id == HOST else self.host.layout.size(self.weights[organelle_id].rank)
        )
        flops = rollout_flops(self.host.shape, parameters, reply.read, reply.written)
        cost = Cost(reply.read, reply.written, rows=1, flops=flops)
        return Answer(
            question, organelle_id, reply.text, question.verdict(reply.text), cost, reply.confidence
        )


def _genome(weights: AdapterWeights | None) -> str:
    """What tells one adapter from another; the bare host has none."""
    if weights is None:
        return HOST
    digest = hashlib.blake2b(weights.vector.tobytes(), digest_size=16)
    digest.update(repr((weights.rank, weights.scaling, weights.layout.modules)).encode())
    return digest.hexdigest()
