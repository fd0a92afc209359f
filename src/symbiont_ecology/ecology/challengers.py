"""Challengers: on probation they answer questions beside their parents, and learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from symbiont_ecology.ecology.gate import PairedCounts
from symbiont_ecology.ecology.organelle import FormerSelf, Genome
from symbiont_ecology.types import OrganelleId

ChallengerKind = Literal["child", "variant", "former self"]
"""A *child* is born when it is admitted, and owns its dowry from the start, since probation leaves
its parents poor. A *variant* or a *former self* is what its only parent becomes, and owns nothing.
"""


@dataclass(frozen=True)
class Challenger:
    """Something that has to prove itself against organelles, and is judged by the mechanism ``by``.

    ``cells`` says where each parent is at home. ``counts[parent][home]`` are the paired answers
    against that parent in the cells where the parent ``home`` is at home.
    """

    id: OrganelleId
    genome: Genome
    operator: str
    by: str
    kind: ChallengerKind
    cells: Mapping[OrganelleId, tuple[str, ...]]
    counts: Mapping[OrganelleId, Mapping[OrganelleId, PairedCounts]] = field(default_factory=dict)
    former: FormerSelf | None = None

    @property
    def against_the_better(self) -> PairedCounts:
        """All questions, against the parent that did best on them."""
        sums = [sum(by_home.values(), PairedCounts()) for by_home in self.counts.values()]
        return min(sums, key=lambda pairs: pairs.wins - pairs.losses, default=PairedCounts())

    @property
    def parents(self) -> tuple[OrganelleId, ...]:
        """Who they are, the first of them first."""
        return tuple(self.cells)
