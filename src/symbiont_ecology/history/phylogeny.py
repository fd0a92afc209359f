"""Who descends from whom, and a file of it in the artificial-life data standard (Lalejini et al.
2019).

One line per organelle that ever lived: ``id``, ``ancestor_list`` (a merge has several ancestors, a
founder ``[NONE]``), ``origin_time`` and ``destruction_time`` in generations (``inf`` for the
living), and beyond the standard the operator that made its weights, what it died of, and their
reference.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from symbiont_ecology.events import Born, Event, Learned, Resized, Retired, WarmStarted
from symbiont_ecology.files import write_whole
from symbiont_ecology.types import BlobRef, OrganelleId

COLUMNS = ("id", "ancestor_list", "origin_time", "destruction_time", "operator", "cause", "weights")


@dataclass(frozen=True)
class Taxon:
    """One organelle from birth to death, in generations; ``died`` is None for the living."""

    id: OrganelleId
    ancestors: tuple[OrganelleId, ...]
    born: int
    operator: str
    weights: BlobRef
    died: int | None = None
    cause: str = ""


class Phylogeny:
    """Everyone who ever lived, in the order of birth, as far as a log was read.

    Ancestors are the parents. Who was refounded has none that live, and descends from whoever had
    its weights first: weights are named by their content. Those of a warm start had nobody.
    """

    def __init__(self) -> None:
        self.taxa: dict[OrganelleId, Taxon] = {}
        self._holders: dict[BlobRef, OrganelleId] = {}

    def add(self, event: Event) -> None:
        """Reads one event; most say nothing of births and deaths."""
        if isinstance(event, Born):
            holder = self._holders.setdefault(event.weights, event.id)
            ancestors = event.parents or ((holder,) if holder not in ("", event.id) else ())
            self.taxa[event.id] = Taxon(
                event.id, ancestors, event.generation, event.operator, event.weights
            )
        elif isinstance(event, WarmStarted):
            self._holders[event.weights] = ""
        elif isinstance(event, Learned | Resized):
            self._holders.setdefault(event.weights, event.id)
        elif isinstance(event, Retired):
            taxon = self.taxa[event.id]
            self.taxa[event.id] = replace(taxon, died=event.generation, cause=event.cause)


def taxa_of(events: Iterable[Event]) -> dict[OrganelleId, Taxon]:
    """Everyone who ever lived, in the order of birth."""
    phylogeny = Phylogeny()
    for event in events:
        phylogeny.add(event)
    return phylogeny.taxa


def write_phylogeny(
    taxa: Mapping[OrganelleId, Taxon], path: Path, *, is_tree: bool = False
) -> None:
    """Writes one CSV line per organelle. Ids are those of the run without their letter: 7 is
    ``o7``.

    With ``is_tree`` a merge has its first parent alone for an ancestor: readers of trees, such as
    phylotrackpy 0.2, refuse several.

    Raises:
        RunError: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(_row(taxon, is_tree) for taxon in taxa.values())
    write_whole(path, text.getvalue())


def _row(taxon: Taxon, is_tree: bool) -> tuple[str, ...]:
    ancestors = taxon.ancestors[:1] if is_tree else taxon.ancestors
    listed = ",".join(_number(organelle_id) for organelle_id in ancestors) or "NONE"
    times = str(taxon.born), "inf" if taxon.died is None else str(taxon.died)
    return _number(taxon.id), f"[{listed}]", *times, taxon.operator, taxon.cause, taxon.weights


def _number(organelle_id: OrganelleId) -> str:
    return organelle_id.removeprefix("o")
