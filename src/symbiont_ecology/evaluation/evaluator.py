"""Asking greedily, with a cache: every item goes to one organelle, all of them in batched calls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.economics import Cost
from symbiont_ecology.engine.act import Question, roll_out
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.answer_cache import AnswerCache, CachedAnswer
from symbiont_ecology.tasks import Judgement, judge
from symbiont_ecology.types import Decoding, Item, OrganelleId
from symbiont_ecology.weights import AdapterWeights

ITEMS_PER_WRITE = 512
"""Items between two entries in the cache: what a killed evaluation loses at most."""

Progress = Callable[[int], None]
"""Called with the number of items that were just answered."""


def no_progress(count: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Evaluator:
    """A host, those who can be asked, and a cache of what they answered before.

    The cache knows a host by its ``fingerprint``. ``stops`` are texts that end an answer.
    """

    host: Host
    weights: Mapping[OrganelleId, AdapterWeights]
    cache: AnswerCache | None = None
    fingerprint: str = ""
    progress: Progress = no_progress
    stops: tuple[str, ...] = ()

    def ask(self, items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """Greedy answers, judged, in the order of the items; ``choices`` says who answers which."""
        adapters = {choice: _digest(self.weights.get(choice)) for choice in set(choices)}
        keys = [
            AnswerCache.key(
                self.fingerprint, adapters[choice], item.prompt, item.reply_limit, self.stops
            )
            for item, choice in zip(items, choices, strict=True)
        ]
        by_key = self.cache.find(keys) if self.cache else {}
        misses = list({key: index for index, key in enumerate(keys) if key not in by_key}.values())
        self.progress(len(keys) - len(misses))
        for start in range(0, len(misses), ITEMS_PER_WRITE):
            part = misses[start : start + ITEMS_PER_WRITE]
            questions = [Question(items[index], choices[index]) for index in part]
            greedy = Decoding(stop=self.stops)
            rollouts, _ = roll_out(questions, self.host, self.weights.__getitem__, greedy)
            fresh = {
                keys[index]: CachedAnswer(
                    rollout.text,
                    rollout.cost.tokens_in,
                    rollout.token_ids,
                    rollout.log_probabilities,
                )
                for index, rollout in zip(part, rollouts, strict=True)
            }
            if self.cache:
                self.cache.add(fresh.items())
            by_key |= fresh
            self.progress(len(part))
        answers = [by_key[key] for key in keys]
        judgements = judge((item, answer.text) for item, answer in zip(items, answers, strict=True))
        return [
            self._rollout(item, organelle_id, answer, judgement)
            for item, organelle_id, answer, judgement in zip(
                items, choices, answers, judgements, strict=True
            )
        ]

    def _rollout(
        self, item: Item, organelle_id: OrganelleId, answer: CachedAnswer, judgement: Judgement
    ) -> Rollout:
        rank = 0 if organelle_id == HOST else self.weights[organelle_id].rank
        tokens_in, tokens_out = answer.prompt_tokens, len(answer.token_ids)
        flops = self.host.shape.rollout_flops(self.host.layout.size(rank), tokens_in, tokens_out)
        return Rollout(
            item,
            organelle_id,
            answer.token_ids,
            answer.log_probabilities,
            answer.text,
            verdict=judgement.verdict,
            reward=judgement.verdict,
            cost=Cost(tokens_in, tokens_out, rows=1, flops=flops),
            fault=judgement.fault,
        )


def _digest(weights: AdapterWeights | None) -> str:
    """What tells one adapter from another; the bare host has none."""
    if weights is None:
        return HOST
    digest = hashlib.blake2b(weights.vector.tobytes(), digest_size=16)
    digest.update(repr((weights.rank, weights.scaling, weights.layout.modules)).encode())
    digest.update(weights.phrase.encode())
    return digest.hexdigest()
