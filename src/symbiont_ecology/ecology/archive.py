"""Quality-diversity archive: the best known weights for every cell (MAP-Elites, Mouret & Clune
2015).

An elite is kept with the weights that it acted with last, so an ability outlives the organelle that
had it: the archive is the gene pool that refounded organelles come from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.organelle import Genome

SCORE_HALF_LIFE = 50
"""Generations after which a score counts half as much, if its holder is no longer there to confirm
it."""


@dataclass(frozen=True)
class Elite:
    """Who held the cell, with which weights, and a success rate in [0, 1] that it probably exceeds
    there."""

    organelle_id: OrganelleId
    weights: BlobRef
    rank: int
    score: float
    generation: int


@dataclass
class Archive:
    """Elites by niche: a cell (``family/depth``), or a habitat."""

    elites: dict[str, Elite] = field(default_factory=dict)

    def add(self, name: str, elite: Elite) -> bool:
        """Puts the elite in a niche if that is empty, held by its own earlier self, or held by a
        worse one.

        Who died lucky must not hold a cell for ever: the score of who no longer practises fades (no
        winner's curse). Returns whether somebody else (or nobody) held the cell before.
        """
        holder = self.elites.get(name)
        if holder is not None and holder.organelle_id != elite.organelle_id:
            fade = 0.5 ** ((elite.generation - holder.generation) / SCORE_HALF_LIFE)
            if holder.score * fade >= elite.score:
                return False
        self.elites[name] = elite
        return holder is None or holder.organelle_id != elite.organelle_id

    def follow(self, organelle_id: OrganelleId, genome: Genome, generation: int) -> None:
        """A holder holds its cells as it is now: what it learned since belongs to it."""
        for name, elite in self.elites.items():
            if elite.organelle_id == organelle_id:
                self.elites[name] = replace(
                    elite, weights=genome.weights, rank=genome.rank, generation=generation
                )

    def pass_on(
        self, holder: OrganelleId, cells: Iterable[str], *, heir: OrganelleId, genome: Genome
    ) -> None:
        """The heir holds those of the cells that the holder held."""
        for name in cells:
            elite = self.elites.get(name)
            if elite is not None and elite.organelle_id == holder:
                self.elites[name] = replace(
                    elite, organelle_id=heir, weights=genome.weights, rank=genome.rank
                )

    @property
    def coverage(self) -> int:
        """How many cells hold an elite."""
        return len(self.elites)
