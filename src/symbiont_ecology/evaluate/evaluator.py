"""Asking greedily, with a memory: what was asked of whom is not asked again.

A greedy answer depends on the host, the adapter, the prompt, the limit of new tokens and the texts
that end it, and on nothing else. So another routing of the same items costs only what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.types import Decoding, Item, OrganelleId
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.run.act import Question, roll_out
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import judge

ITEMS_PER_STEP = 512
"""Items between two signs of progress."""

Progress = Callable[[int], None]
"""Called with the number of items that were just answered."""
AnswerKey = tuple[OrganelleId, str, int]
"""An organelle, the prompt, and the limit of new tokens."""
Answers = dict[AnswerKey, Rollout]


def no_progress(count: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Evaluator:
    """A host, the adapters of those who can be asked, and what they ``answered`` before. ``stops``
    are texts that end an answer."""

    host: Host
    adapters: Mapping[OrganelleId, AdapterWeights]
    progress: Progress = no_progress
    stops: tuple[str, ...] = ()
    answered: Answers = field(default_factory=dict, repr=False)

    def ask(self, items: Sequence[Item], choices: Sequence[OrganelleId]) -> list[Rollout]:
        """Return greedy answers, judged, in the order of the items; ``choices`` says who answers
        which."""
        questions = [Question(item, name) for item, name in zip(items, choices, strict=True)]
        unknown = {_key(one): one for one in questions if _key(one) not in self.answered}
        self.progress(len(questions) - len(unknown))
        waiting = iter(unknown.values())
        while asked := list(islice(waiting, ITEMS_PER_STEP)):
            greedy = Decoding(stop=self.stops)
            rollouts, _ = roll_out(asked, self.host, self.adapters.__getitem__, greedy)
            for question, rollout in zip(asked, rollouts, strict=True):
                self.answered[_key(question)] = rollout
            self.progress(len(asked))
        rollouts = [self.answered[_key(question)] for question in questions]
        judgements = judge((item, one.text) for item, one in zip(items, rollouts, strict=True))
        return [
            replace(one, item=item, verdict=mark.verdict, reward=mark.verdict, fault=mark.fault)
            for item, one, mark in zip(items, rollouts, judgements, strict=True)
        ]


def _key(question: Question) -> AnswerKey:
    item = question.item
    return question.organelle_id, item.prompt, item.reply_limit
