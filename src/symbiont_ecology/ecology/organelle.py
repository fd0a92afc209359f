"""An organelle: one adapter with a genome, an optimizer state and memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.users import MAX_ANSWERS, RememberedAnswer

HOST: OrganelleId = "host"
"""The id under which the bare host appears in assignments and events; it owns no account and never
learns."""

SCORE = "score"
"""The note that says how good its weights were found to be."""

DROPOUT = "dropout"
"""The trait that says which share of its inputs an organelle does not see while it learns."""


@dataclass(frozen=True)
class Genome:
    """The inheritance: adapter weights by reference, and traits (``learning_rate`` is Adam's step
    size)."""

    weights: BlobRef
    rank: int
    traits: dict[str, float]


@dataclass(frozen=True)
class Organelle:
    """One living adapter. ``inborn`` are the weights that it was born with, ``overdrawn`` counts
    the generations in a row that it ended below zero. ``memories`` are answers that users had
    accepted before they changed. ``notes`` are what parts keep of it, by the name of the part."""

    id: OrganelleId
    genome: Genome
    optimizer_state: BlobRef
    parents: tuple[OrganelleId, ...]
    operator: str
    born: int
    inborn: BlobRef
    overdrawn: int = 0
    memories: tuple[RememberedAnswer, ...] = ()
    notes: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """Score that a strategy noted of these weights: it tells equals apart after a run."""
        score = self.notes.get(SCORE)
        return score if isinstance(score, float) else None

    def remembering(self, answers: Sequence[RememberedAnswer]) -> Organelle:
        """Return it with some more memories; the newest of each family are kept."""
        memories, counts = list[RememberedAnswer](), Counter[str]()
        for answer in reversed((*self.memories, *answers)):
            counts[answer.family] += 1
            if counts[answer.family] <= MAX_ANSWERS:
                memories.append(answer)
        return replace(self, memories=tuple(reversed(memories)))
