"""The phylogeny of a run as a CSV file in the artificial-life data standard (Lalejini et al. 2019).

A line per organelle that ever lived: ``id``, ``ancestor_list`` (a merge has several ancestors, a
founder ``[NONE]``), ``origin_time`` and ``destruction_time`` in generations (``inf`` for the
living), and beyond the standard the operator that made its weights, what it died of, and their
reference.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.extensions.evoscope.history import Taxon

COLUMNS = ("id", "ancestor_list", "origin_time", "destruction_time", "operator", "cause", "weights")


def write_phylogeny(
    taxa: Mapping[OrganelleId, Taxon], path: Path, *, is_tree: bool = False
) -> None:
    """Write a line per organelle. Ids are those of the run without their letter: 7 is ``o7``.

    With ``is_tree`` a merge has its first parent alone for an ancestor: readers of trees, such as
    phylotrackpy 0.2, refuse several.

    Raises:
        RunError: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for taxon in taxa.values():
        ancestors = taxon.ancestors[:1] if is_tree else taxon.ancestors
        listed = ",".join(name.removeprefix("o") for name in ancestors) or "NONE"
        died = "inf" if taxon.died is None else taxon.died
        life = taxon.born, died, taxon.operator, taxon.cause, taxon.weights
        writer.writerow((taxon.id.removeprefix("o"), f"[{listed}]", *life))
    write_whole(path, text.getvalue())
