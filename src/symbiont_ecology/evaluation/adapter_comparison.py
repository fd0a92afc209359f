"""A PEFT adapter beside its bare host, item by item: what became right, and what became wrong.

Both answer the same items, greedily and one after the other. Both also read the reference answers:
how likely these are to each of them tells of learning that does not show in replies yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Literal

from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.engine.act import Question, read_log
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.evaluation.general import TextLikelihood
from symbiont_ecology.evaluation.measure import (
    Evaluation,
    EvaluationDifference,
    Record,
    difference,
    evaluate_adapter,
    interval_values,
)
from symbiont_ecology.statistics import paired_interval
from symbiont_ecology.types import Item, last_turn
from symbiont_ecology.weights.peft_files import read_peft

Change = Literal["improvement", "regression", "both right", "both wrong"]
CHANGES: tuple[Change, ...] = ("improvement", "regression", "both right", "both wrong")
COMPARISON_SCHEMA = 2
"""Of the JSON; raise it when a key goes or changes its meaning."""


@dataclass(frozen=True)
class AnsweredTwice:
    """One item with the replies of the bare host and of the adapter."""

    host: Rollout
    adapter: Rollout

    @property
    def item(self) -> Item:
        """What was asked."""
        return self.host.item

    @property
    def change(self) -> Change:
        """What the adapter made of it."""
        match self.host.is_right, self.adapter.is_right:
            case False, True:
                return "improvement"
            case True, False:
                return "regression"
            case True, True:
                return "both right"
        return "both wrong"

    def record(self) -> Record:
        """Everything as plain values."""
        return {
            "id": self.item.id,
            "family": self.item.family,
            "depth": self.item.depth,
            "prompt": last_turn(self.item.prompt),
            "target": self.item.answer,
            "change": self.change,
            "host": _of_reply(self.host),
            "adapter": _of_reply(self.adapter),
        }


@dataclass(frozen=True, repr=False)
class AdapterComparison:
    """Two evaluations of the same items, by the bare host and by the adapter.

    ``host_nats`` and ``adapter_nats`` hold for every item the mean log-probability of a token of
    its reference answer, in nats; 0 where it has none.
    """

    host: Evaluation
    adapter: Evaluation
    host_nats: tuple[float, ...]
    adapter_nats: tuple[float, ...]

    def __repr__(self) -> str:
        return f"<{self.adapter!r} beside its host: {self.counts}>"

    @property
    def pairs(self) -> list[AnsweredTwice]:
        """The items in their order."""
        rollouts = zip(self.host.rollouts, self.adapter.rollouts, strict=True)
        return [AnsweredTwice(bare, adapted) for bare, adapted in rollouts]

    @property
    def counts(self) -> dict[Change, int]:
        """How many items of each kind."""
        changes = [pair.change for pair in self.pairs]
        return {change: changes.count(change) for change in CHANGES}

    @cached_property
    def difference(self) -> EvaluationDifference:
        """Accuracy of the adapter minus that of the host."""
        return difference(self.adapter, self.host)

    @property
    def answers(self) -> TextLikelihood | None:
        """How likely the reference answers are to both; None for less than two of them."""
        has_answer = [bool(item.answer) for item in self.host.items]
        if (count := sum(has_answer)) < 2:
            return None
        nats, host_nats = (
            list(compress(side, has_answer)) for side in (self.adapter_nats, self.host_nats)
        )
        change = paired_interval(nats, host_nats)
        return TextLikelihood(sum(nats) / count, sum(host_nats) / count, change, count)

    def examples(self, change: Change, most: int) -> list[AnsweredTwice]:
        """Some items of a kind, from all over."""
        pairs = [pair for pair in self.pairs if pair.change == change]
        step = max(len(pairs) // most, 1)
        return pairs[::step][:most]

    def by(self, name_of: Callable[[Item], str]) -> dict[str, AdapterComparison]:
        """The comparison of each group of items, by the name of the group."""
        places = defaultdict[str, list[int]](list)
        for place, item in enumerate(self.host.items):
            places[name_of(item)].append(place)
        return {name: self._part(group) for name, group in places.items()}

    @property
    def groups(self) -> dict[str, AdapterComparison]:
        """The comparison of each family; of a single one, of each cell if it has several."""
        families = self.by(lambda item: item.family)
        groups = families if len(families) > 1 else self.by(lambda item: "/".join(item.cell))
        return groups if len(groups) > 1 else {}

    @property
    def categories(self) -> dict[str, AdapterComparison]:
        """The comparison of each family, and behind a family of several depths of each cell."""
        parts = dict[str, AdapterComparison]()
        for family, part in self.by(lambda item: item.family).items():
            parts |= {family: part} | part.groups
        return parts

    def summary(self) -> Record:
        """Everything but the single answers, as plain values under stable keys."""
        answers = self.answers
        return {
            "schema": COMPARISON_SCHEMA,
            "questions": len(self.pairs),
            "host": self.host.summary(),
            "adapter": self.adapter.summary(),
            "difference": asdict(self.difference),
            "changes": self.counts,
            "categories": {name: _of_part(part) for name, part in self.categories.items()},
            "answers": None if answers is None else answers.summary(),
        }

    def record(self) -> Record:
        """The summary and, under ``items``, both replies to everything."""
        return {**self.summary(), "items": [pair.record() for pair in self.pairs]}

    def _part(self, places: Sequence[int]) -> AdapterComparison:
        def part_of(evaluation: Evaluation) -> Evaluation:
            """The evaluation of these items alone."""
            rollouts = tuple(evaluation.rollouts[place] for place in places)
            return replace(evaluation, rollouts=rollouts, general=None)

        nats = (
            tuple(side[place] for place in places) for side in (self.host_nats, self.adapter_nats)
        )
        return AdapterComparison(part_of(self.host), part_of(self.adapter), *nats)


def compare_with_host(
    folder: Path,
    items: Sequence[Item],
    host: Host,
    *,
    progress: Progress = no_progress,
    stops: tuple[str, ...] = (),
) -> AdapterComparison:
    """Puts all items to a PEFT adapter and to its host without any, and lets both read the
    reference answers.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    weights = {"adapter": read_peft(folder, host.layout)}
    bare, adapted = (
        evaluate_adapter(folder, items, host, is_bare=is_bare, progress=progress, stops=stops)
        for is_bare in (True, False)
    )
    rows = [item.to_read for item in items]
    nats = []
    for reader in (HOST, "adapter"):
        rollouts, _ = read_log([Question(item, reader) for item in rows], host, weights.__getitem__)
        # Without the end behind the answer: where a stop text ends replies, it is never written.
        scores = (rollout.log_probabilities[:-1] for rollout in rollouts)
        nats.append(tuple(float(tokens.mean()) if tokens.size else 0.0 for tokens in scores))
    return AdapterComparison(bare, adapted, *nats)


def _of_reply(rollout: Rollout) -> Record:
    """A reply and what it is worth."""
    return {"reply": rollout.text, "verdict": rollout.verdict, "right": rollout.is_right}


def _of_part(part: AdapterComparison) -> Record:
    """The numbers of a group of items."""
    answers = part.answers
    return {
        "questions": len(part.pairs),
        "host": interval_values(part.host.accuracy()),
        "adapter": interval_values(part.adapter.accuracy()),
        "difference": asdict(part.difference),
        "changes": part.counts,
        "answers": None if answers is None else answers.summary(),
    }
