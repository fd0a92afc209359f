"""Change, novelty and diversity of what persists (MODES, Dolson et al. 2019), generation by
generation.

Most newcomers are noise that selection has not judged yet. So only those count whose line is still
there an ``interval`` later: themselves, or someone who descends from them. What they are is where
they earned: the set of cells that each brought a tenth or more of their verified answers. The world
bounds how many such sets there are, and so novelty in the long run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from life_history import History
from symbiont_ecology.extensions.evoscope.history import Taxon
from symbiont_ecology.types import OrganelleId

PART = 0.1
"""Part of its verified answers that a cell has to bring to belong to what an organelle is."""


@dataclass(frozen=True)
class Potential:
    """One snapshot: of those who lived at ``generation`` and whose lines persisted."""

    generation: int
    change: int  # kinds that were not there a snapshot before
    novelty: int  # kinds that were never there before
    diversity: float  # Shannon entropy of kinds, in nats
    kinds: int
    lines: int  # organelles that persisted, or whose descendants did, and that earned something


def potentials(history: History, interval: int) -> list[Potential]:
    """A snapshot every ``interval`` generations, from the first whose future is known for as long.

    Raises:
        ValueError: the interval is no positive number.
    """
    if interval < 1:
        raise ValueError(f"expected an interval of 1 or more generations, got {interval}")
    snapshots: list[Potential] = []
    ever: set[frozenset[str]] = set()
    last: set[frozenset[str]] = set()
    for now in range(interval, history.generations - interval + 1, interval):
        lines = _forebears(history.alive[now + interval - 1], history.taxa) & history.alive[now - 1]
        earned = history.earned(now - interval, now)
        kinds = Counter(
            kind
            for organelle_id in sorted(lines)
            if (kind := _kind(earned.get(organelle_id, Counter())))
        )
        current = set(kinds)
        shares = [count / kinds.total() for count in kinds.values()]
        diversity = sum(-share * math.log(share) for share in shares)
        change, novelty = len(current - last), len(current - ever)
        snapshots.append(Potential(now, change, novelty, diversity, len(current), kinds.total()))
        ever, last = ever | current, current
    return snapshots


def _kind(cells: Counter[str]) -> frozenset[str]:
    return frozenset(
        cell for cell, count in cells.items() if count and count >= PART * cells.total()
    )


def _forebears(
    living: frozenset[OrganelleId], taxa: Mapping[OrganelleId, Taxon]
) -> set[OrganelleId]:
    """The living and everyone whom they descend from."""
    forebears: set[OrganelleId] = set()
    waiting = list(living)
    while waiting:
        organelle_id = waiting.pop()
        if organelle_id not in forebears:
            forebears.add(organelle_id)
            waiting += taxa[organelle_id].ancestors
    return forebears
