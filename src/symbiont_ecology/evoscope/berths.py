"""Where bodies are on the living canvas: a place of a hexagonal lattice for a whole life.

A newborn takes the free place next to its first parent, or the free place nearest to the centre. So
bodies never overlap, and relatives are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from symbiont_ecology.history.phylogeny import Taxon
from symbiont_ecology.types import OrganelleId

Place = tuple[float, float]
"""x and y, in distances of neighbours; the centre is (0, 0)."""
SPARE_BERTHS = 6
"""Free places beyond those in use that a child may choose from."""


def berths_of(taxa: Mapping[OrganelleId, Taxon]) -> dict[OrganelleId, Place]:
    """The place of everyone who ever lived; those of the dead are taken again."""
    lattice = _lattice(len(taxa) + SPARE_BERTHS)
    taken: dict[OrganelleId, int] = {}
    places: dict[OrganelleId, Place] = {}
    for taxon in sorted(taxa.values(), key=lambda life: life.born):
        for name in [name for name in taken if _is_gone(taxa[name], taxon.born)]:
            del taken[name]
        used = set(taken.values())
        free = [number for number in range(len(used) + SPARE_BERTHS) if number not in used]
        near = [lattice[taken[parent]] for parent in taxon.ancestors if parent in taken]
        home = near[0] if near else (0.0, 0.0)
        berth = min(free, key=lambda number: (round(math.dist(lattice[number], home), 6), number))
        taken[taxon.id], places[taxon.id] = berth, lattice[berth]
    return places


def _is_gone(taxon: Taxon, generation: int) -> bool:
    return taxon.died is not None and taxon.died < generation


def _lattice(count: int) -> list[Place]:
    """Places of a hexagonal lattice, the nearest to the centre first."""
    reach = math.isqrt(count) + 1
    places = [
        (column + row / 2, row * math.sqrt(3) / 2)
        for row in range(-reach, reach + 1)
        for column in range(-2 * reach, 2 * reach + 1)
    ]
    return sorted(places, key=lambda place: (round(math.hypot(*place), 6), math.atan2(*place)))
