"""A routing for studies: the oracle that reads the family of a question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from symbiont_ecology.base.types import Item, OrganelleId, cell_family
from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.pool import AdapterPool
from symbiont_ecology.evaluate.routings import Routing, routings


def best_of_families(pool: AdapterPool, families: Collection[str]) -> dict[str, OrganelleId]:
    """Return the elite with the highest success in one of the cells of each family, or the host."""
    scores: dict[str, list[tuple[float, OrganelleId]]] = {family: [] for family in families}
    for cell, by_name in pool.scores.items():
        own = [(score, name) for name, score in by_name.items() if name in pool.elites]
        scores.setdefault(cell_family(cell), []).extend(own)
    return {family: max(scores[family], default=(0.0, HOST))[1] for family in families}


@routings.register("family")
@dataclass(frozen=True)
class AskBestOfFamily(Routing):
    """An oracle: the best elite of any cell of the item's family."""

    needs_labels: ClassVar[bool] = True

    def choose(self, pool: AdapterPool, items: Sequence[Item]) -> list[OrganelleId]:
        chosen = best_of_families(pool, {item.family for item in items})
        return [chosen[item.family] for item in items]
