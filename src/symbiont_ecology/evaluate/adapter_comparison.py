"""Adapters beside their bare host: what became right, and what became wrong.

Both answer the same items greedily, and both read the reference answers: how likely these are to
each of them tells of learning that does not show in replies. Free text is seldom written twice in
the same words, so likelihood is what counts there.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.statistics import Interval, paired_interval
from symbiont_ecology.base.types import Item, OrganelleId, last_turn
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.items import some_of
from symbiont_ecology.evaluate.measure import (
    Evaluation,
    EvaluationDifference,
    LoadedRun,
    Record,
    difference,
    evaluate_adapter,
)
from symbiont_ecology.run.act import Question, read_log
from symbiont_ecology.run.runtime import Host

CHANGES = {
    (False, True): "improvement",
    (True, False): "regression",
    (True, True): "both right",
    (False, False): "both wrong",
}
"""Name of what happened to an item, by whether the host and the adapter were right."""
COMPARISON_SCHEMA = 4
"""Of the JSON; raise it when a key goes or changes its meaning."""
ALL_OF_A_USER = 1 << 20


@dataclass(frozen=True)
class TextLikelihood:
    """Mean log-probability of a token, in nats, of texts that count alike: under who was asked, and
    under the bare host. ``change`` is the first minus the second, paired, with its 95 % interval.
    """

    nats: float
    host_nats: float
    change: Interval
    texts: int

    @classmethod
    def of(cls, nats: Sequence[float], host_nats: Sequence[float]) -> TextLikelihood:
        """Return the likelihood of texts whose tokens have these mean log-probabilities."""
        return cls(fmean(nats), fmean(host_nats), paired_interval(nats, host_nats), len(nats))

    @property
    def perplexity(self) -> float:
        """Perplexity of a token, under who was asked."""
        return math.exp(-self.nats)

    @property
    def host_perplexity(self) -> float:
        """Perplexity of a token, under the bare host."""
        return math.exp(-self.host_nats)

    def summary(self) -> dict[str, object]:
        """Return everything as plain values."""
        sizes = {"perplexity": self.perplexity, "host_perplexity": self.host_perplexity}
        return asdict(self) | sizes


@dataclass(frozen=True)
class AdapterComparison:
    """Two evaluations of the same items, by the bare host and by adapters.

    ``host_nats`` and ``nats`` hold for every item the mean log-probability of a token of its
    reference answer, in nats; 0 where it has none.
    """

    host: Evaluation
    adapter: Evaluation
    host_nats: tuple[float, ...]
    nats: tuple[float, ...]

    @property
    def changes(self) -> list[str]:
        """Kind of change of each item."""
        pairs = zip(self.host.rollouts, self.adapter.rollouts, strict=True)
        return [CHANGES[before.is_right, after.is_right] for before, after in pairs]

    @property
    def counts(self) -> dict[str, int]:
        """Number of items of each kind."""
        return dict.fromkeys(CHANGES.values(), 0) | Counter(self.changes)

    @cached_property
    def difference(self) -> EvaluationDifference:
        """Accuracy of the adapter minus that of the host."""
        return difference(self.adapter, self.host)

    @property
    def answers(self) -> TextLikelihood | None:
        """Likelihood of the reference answers to both; None for less than two of them."""
        triples = zip(self.host.items, self.nats, self.host_nats, strict=True)
        pairs = [(nats, host_nats) for item, nats, host_nats in triples if item.answer]
        return TextLikelihood.of(*zip(*pairs, strict=True)) if len(pairs) > 1 else None

    @property
    def categories(self) -> dict[str, AdapterComparison]:
        """The comparison of each family, and behind a family of several depths of each cell."""
        places = defaultdict[str, dict[str, list[int]]](lambda: defaultdict(list))
        for place, item in enumerate(self.host.items):
            places[item.family]["/".join(item.cell)].append(place)
        parts = dict[str, AdapterComparison]()
        for family, cells in places.items():
            parts[family] = self.part(sorted(chain(*cells.values())))
            parts |= {name: self.part(cell) for name, cell in cells.items() if len(cells) > 1}
        return parts

    def part(self, places: Sequence[int]) -> AdapterComparison:
        """Return the comparison of some of the items."""
        nats = (tuple(side[place] for place in places) for side in (self.host_nats, self.nats))
        return AdapterComparison(self.host.part(places), self.adapter.part(places), *nats)

    def summary(self) -> Record:
        """Return the numbers as plain values."""
        return {
            "questions": len(self.changes),
            "host": asdict(self.host.accuracy()),
            "adapter": asdict(self.adapter.accuracy()),
            "difference": asdict(self.difference),
            "changes": self.counts,
            "answers": None if self.answers is None else self.answers.summary(),
        }

    def record(self) -> Record:
        """Return all numbers as plain values and, under ``items``, both replies to everything."""
        sides = (self.host.rollouts, self.adapter.rollouts, self.changes)
        return {
            "schema": COMPARISON_SCHEMA,
            **self.summary(),
            "host": self.host.summary(),
            "adapter": self.adapter.summary(),
            "categories": {name: part.summary() for name, part in self.categories.items()},
            "items": [
                {
                    "id": bare.item.id,
                    "family": bare.item.family,
                    "depth": bare.item.depth,
                    "prompt": last_turn(bare.item.prompt),
                    "target": bare.item.answer,
                    "change": change,
                    "host": _reply(bare),
                    "adapter": _reply(adapted),
                }
                for bare, adapted, change in zip(*sides, strict=True)
            ],
        }


def compare_with_host(
    folder: Path,
    items: Sequence[Item],
    host: Host,
    *,
    progress: Progress = no_progress,
    stops: tuple[str, ...] = (),
) -> AdapterComparison:
    """Put all items to a PEFT adapter and to its bare host; let both read the reference answers.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    weights = {"adapter": read_peft(folder, host.layout)}
    bare, adapted = (
        evaluate_adapter(folder, items, host, is_bare=is_bare, progress=progress, stops=stops)
        for is_bare in (True, False)
    )
    readings = _read(items, ["adapter"] * len(items), host, weights.__getitem__)
    # Without the end behind the answer: where a stop text ends replies, it is never written.
    scores = ([rollout.log_probabilities[:-1] for rollout in side] for side in readings)
    nats = (tuple(float(x.mean()) if x.size else 0.0 for x in side) for side in scores)
    return AdapterComparison(bare, adapted, *nats)


def held_out(
    run: LoadedRun, host: Host, max_items: int | None = None, progress: Progress = no_progress
) -> AdapterComparison:
    """Ask those who serve a user, and the host, about accepted replies that were held out of the
    log, at most so many of them by draw."""
    rows = run.items(ALL_OF_A_USER, ("habitats",))
    items = some_of([item for item in rows if run.pool.server(item.habitat) != HOST], max_items)
    readers = [run.pool.server(item.habitat) for item in items]
    served, bare = (
        run.evaluate(items, host, routing, progress=progress) for routing in ("habitat", "host")
    )
    nats = (
        tuple(rollout.confidence for rollout in side)
        for side in _read(items, readers, host, run.pool.adapter)
    )
    return AdapterComparison(bare, served, *nats)


def _read(
    items: Sequence[Item],
    readers: Sequence[OrganelleId],
    host: Host,
    weights_of: Callable[[OrganelleId], AdapterWeights],
) -> Iterator[list[Rollout]]:
    """Let the host, and then each item's reader, read the reference answers."""
    for names in ([HOST] * len(items), readers):
        pairs = zip(items, names, strict=True)
        questions = [Question(item.to_read, name) for item, name in pairs]
        yield read_log(questions, host, weights_of)[0]


def _reply(rollout: Rollout) -> Record:
    return {"reply": rollout.text, "verdict": rollout.verdict, "right": rollout.is_right}
