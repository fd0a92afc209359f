"""Children on probation: they answer questions beside their parents, and learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symbiont_ecology.ecology.gate import Tally
from symbiont_ecology.ecology.organelle import Former, Genome
from symbiont_ecology.types import OrganelleId


@dataclass(frozen=True)
class Candidate:
    """A child of several parents, or the former self of one, that has still to show what it is worth.

    ``cells`` says where each parent is at home, and ``tallies`` how the child did against each parent on the
    same questions: ``tallies[parent][home]`` in the cells where the parent ``home`` is at home. A child owns
    its dowry from the beginning, since probation leaves its parents poor; another self of one owns nothing.
    """

    id: OrganelleId
    genome: Genome
    operator: str
    born: int
    cells: Mapping[OrganelleId, tuple[str, ...]]
    tallies: Mapping[OrganelleId, Mapping[OrganelleId, Tally]] = field(default_factory=dict)
    former: Former | None = None

    @property
    def against_the_better(self) -> Tally:
        """All questions, against the parent who did best on them."""
        sums = [sum(by_home.values(), Tally()) for by_home in self.tallies.values()]
        return min(sums, key=lambda tally: tally.wins - tally.losses, default=Tally())

    @property
    def is_child(self) -> bool:
        """Whether it is born when it is admitted."""
        return len(self.cells) > 1

    @property
    def parents(self) -> tuple[OrganelleId, ...]:
        """Who they are, the first of them first."""
        return tuple(self.cells)
