"""Quality-diversity archive: the best known weights for every cell (MAP-Elites, Mouret & Clune 2015).

An elite is kept with the weights that earned its score, so an ability outlives the organelle that had it:
the archive is the gene pool that refounded organelles come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from symbiont_ecology.types import BlobRef, Cell, OrganelleId


@dataclass(frozen=True)
class Elite:
    """Who held the cell, with which weights and which believed success rate in [0, 1]."""

    who: OrganelleId
    weights: BlobRef
    rank: int
    score: float
    generation: int


@dataclass
class Archive:
    """Elites by cell name (``family/depth``)."""

    elites: dict[str, Elite] = field(default_factory=dict)

    def add(self, cell: Cell, elite: Elite) -> bool:
        """Puts the elite in its cell if that is empty, held by its own earlier self, or held by a worse one.

        Returns whether somebody else (or nobody) held the cell before.
        """
        name = cell_name(cell)
        held = self.elites.get(name)
        if held is not None and held.who != elite.who and held.score >= elite.score:
            return False
        self.elites[name] = elite
        return held is None or held.who != elite.who

    @property
    def coverage(self) -> int:
        """How many cells hold an elite."""
        return len(self.elites)


def cell_name(cell: Cell) -> str:
    """``family/depth``, the form of a cell in events, prices and state."""
    return f"{cell[0]}/{cell[1]}"
