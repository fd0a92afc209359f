"""An adapter beside its bare host: what became right, and what became wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import cast

from symbiont_ecology.base.types import last_turn
from symbiont_ecology.evaluate.measure import Evaluation, Record, SystemComparison

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
    def systems(self) -> SystemComparison:
        """The two as systems, of which the adapter is the main one."""
        return SystemComparison({"host": self.host, "adapter": self.adapter}, "adapter")

    @property
    def changes(self) -> list[str]:
        """Kind of change of each item."""
        pairs = zip(self.host.rollouts, self.adapter.rollouts, strict=True)
        return [CHANGES[before.is_right, after.is_right] for before, after in pairs]

    @property
    def counts(self) -> dict[str, int]:
        """Number of items of each kind."""
        return dict.fromkeys(CHANGES.values(), 0) | Counter(self.changes)

    def record(self) -> Record:
        """Return the record of both systems and the number of changes of each kind.

        Each item also has its prompt, its change, and the host's reply.
        """
        record = self.systems.record()
        for item, change, bare in zip(
            cast("list[Record]", record["items"]), self.changes, self.host.rollouts, strict=True
        ):
            item["prompt"] = last_turn(bare.item.prompt)
            item["change"], item["host_reply"] = change, bare.text
        return {**record, "changes": self.counts}
