"""Asking and grading: every question goes to one organelle, all of them in batched calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symbiont_ecology.ecology import HOST
from symbiont_ecology.economics import rollout_flops
from symbiont_ecology.engine.act import waves
from symbiont_ecology.engine.world import Host
from symbiont_ecology.evaluation.questions import Question
from symbiont_ecology.types import Decoding, OrganelleId, Row
from symbiont_ecology.weights import AdapterWeights


@dataclass(frozen=True)
class Answer:
    """A graded reply. ``flops`` are the useful FLOPs of this rollout."""

    question: Question
    who: OrganelleId
    reply: str
    verdict: float
    flops: int


def answer(
    host: Host,
    questions: Sequence[Question],
    choices: Sequence[OrganelleId],
    weights: Mapping[OrganelleId, AdapterWeights],
) -> list[Answer]:
    """Greedy replies, graded, in the order of the questions; ``choices`` says who answers which."""
    found: dict[int, Answer] = {}
    for slots in waves(set(choices), host.slots):
        for who, slot in slots.items():
            if who != HOST:
                host.place(slot, weights[who])
        chosen = [index for index, who in enumerate(choices) if who in slots]
        rows = [Row(questions[i].prompt, slots[choices[i]], questions[i].reply_limit) for i in chosen]
        rollouts = host.rollout(rows, None, Decoding())
        for place, index in enumerate(chosen):
            question, who = questions[index], choices[index]
            parameters = 0 if who == HOST else host.layout.size(weights[who].rank)
            read, written = int(rollouts.prompt_lengths[place]), int(rollouts.lengths[place])
            flops = rollout_flops(host.shape, parameters, read, written)
            reply = rollouts.texts[place]
            found[index] = Answer(question, who, reply, question.verdict(reply), flops)
    return [found[index] for index in range(len(questions))]
