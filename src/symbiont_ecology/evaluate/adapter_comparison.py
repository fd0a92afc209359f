"""An adapter beside its bare host: what became right, and what became wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from symbiont_ecology.base.types import Item, last_turn
from symbiont_ecology.ecology import Rollout
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.measure import (
    Evaluation,
    EvaluationDifference,
    Record,
    difference,
    evaluate_adapter,
)
from symbiont_ecology.run.runtime import Host

CHANGES = {
    (False, True): "improvement",
    (True, False): "regression",
    (True, True): "both right",
    (False, False): "both wrong",
}
"""Name of what happened to an item, by whether the host and the adapter were right."""


@dataclass(frozen=True)
class AdapterComparison:
    """Two evaluations of the same items, by the bare host and by an adapter."""

    host: Evaluation
    adapter: Evaluation

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
    def categories(self) -> dict[str, AdapterComparison]:
        """The comparison of each family."""
        hosts, adapters = self.host.families, self.adapter.families
        return {name: AdapterComparison(part, adapters[name]) for name, part in hosts.items()}

    def summary(self) -> Record:
        """Return the numbers as plain values."""
        return {
            "questions": len(self.host.rollouts),
            "host": asdict(self.host.accuracy()),
            "adapter": asdict(self.adapter.accuracy()),
            "difference": asdict(self.difference),
            "changes": self.counts,
        }

    def record(self) -> Record:
        """Return all numbers as plain values and, under ``items``, both replies to everything."""
        sides = (self.host.rollouts, self.adapter.rollouts, self.changes)
        return {
            "schema": 5,
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
    """Put all items to a PEFT adapter and to its bare host.

    Raises:
        AdapterError: the folder cannot be used with this host.
    """
    bare, adapted = (
        evaluate_adapter(folder, items, host, is_bare=is_bare, progress=progress, stops=stops)
        for is_bare in (True, False)
    )
    return AdapterComparison(bare, adapted)


def _reply(rollout: Rollout) -> Record:
    return {"reply": rollout.text, "verdict": rollout.verdict, "right": rollout.is_right}
