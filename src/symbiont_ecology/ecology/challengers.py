"""Children on probation: they answer questions beside their parents, and learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symbiont_ecology.ecology.gate import PairedCounts
from symbiont_ecology.ecology.organelle import FormerSelf, Genome
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True)
class Challenger:
    """Who has still to show what it is worth, and is judged by the mechanism ``by``.

    A child is born when it is admitted, and owns its dowry from the beginning, since probation
    leaves its parents poor; another self of an organelle (``is_child`` false) is what that one
    becomes, and owns nothing. ``cells`` says where each parent is at home, and ``tallies`` how the
    child did against each parent on the same questions: ``tallies[parent][home]`` in the cells
    where the parent ``home`` is at home.
    """

    id: OrganelleId
    genome: Genome
    operator: str
    by: str
    is_child: bool
    cells: Mapping[OrganelleId, tuple[str, ...]]
    tallies: Mapping[OrganelleId, Mapping[OrganelleId, PairedCounts]] = field(default_factory=dict)
    former: FormerSelf | None = None

    @property
    def against_the_better(self) -> PairedCounts:
        """All questions, against the parent who did best on them."""
        sums = [sum(by_home.values(), PairedCounts()) for by_home in self.tallies.values()]
        return min(sums, key=lambda tally: tally.wins - tally.losses, default=PairedCounts())

    @property
    def parents(self) -> tuple[OrganelleId, ...]:
        """Who they are, the first of them first."""
        return tuple(self.cells)
