"""Phylogenies as CSV files in the artificial-life data standard (Lalejini et al. 2019): that of a
run, and those of others as a record that the page shows.

A line per organelle that ever lived: ``id``, ``ancestor_list`` (a merge has several ancestors, a
founder ``[NONE]``), ``origin_time`` and ``destruction_time`` in generations (``inf`` for the
living), and beyond the standard the operator that made its weights, what it died of, and their
reference. Of files of others only descent and times are read. Without times, a life begins one step
after that of its first ancestor.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.base.files import write_whole
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.extensions.evoscope.history import History, Taxon
from symbiont_ecology.extensions.evoscope.record import PageRecord, log_record

COLUMNS = ("id", "ancestor_list", "origin_time", "destruction_time", "operator", "cause", "weights")
MAX_STEPS = 1000
"""Moments into which other people's time is cut, if it is not whole numbers."""
MAX_TAXA = 10_000


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


def phylogeny_record(path: Path) -> PageRecord:
    """Return the record of a phylogeny; views of anything but descent are empty.

    Raises:
        DataError: it is no such file.
    """
    taxa, scale = _read_taxa(path)
    history = History()
    history.has_economy, history.taxa = False, taxa
    count = max(max(taxon.born, taxon.died or 0) for taxon in taxa.values()) + 1
    changes = np.zeros(count, int)
    for taxon in taxa.values():
        changes[taxon.born] += 1
        if taxon.died is not None:
            changes[taxon.died] -= 1
    for generation, population in enumerate(np.cumsum(changes).tolist()):
        history.ends.append(GenerationEnded(generation, population, 0, 0, None, 0, 0, 0, 0, 0))
        history.balances.append({})
    record = log_record(history)
    for row in record["organelles"]:
        row["colour"] = -1  # nobody is known to have answered more than others
    return {
        **record,
        "isPhylogeny": True,
        "name": path.name,
        "strategy": "phylogeny",
        "host": "unknown",
        "seed": "–",
        "config": "",
        "planned": count,
        "replies": [],
        "evaluations": [],
        "leftOut": [
            f"{path.name} says who descends from whom, and nothing else.",
            *record["leftOut"],
            *([] if scale == 1 else [f"A step is {1 / scale:.6g} of its units of time."]),
        ],
    }


def _read_taxa(path: Path) -> tuple[dict[str, Taxon], float]:
    """Return everyone by name, in the order of birth, and steps per unit of time."""
    rows = _rows(path)
    born = {name: _time(row.get("origin_time")) for name, row in rows.items()}
    died = {name: _time(row.get("destruction_time")) for name, row in rows.items()}
    ancestors = {name: _ancestors(row["ancestor_list"] or "", rows) for name, row in rows.items()}
    depths = _depths(path, ancestors)
    if any(time is None for time in born.values()):
        born = depths
    times = [time for time in (*born.values(), *died.values()) if time is not None]
    start, span = min(times), max(times) - min(times)
    if not math.isfinite(span):
        raise DataError(f"{path}: expected times that fit on one scale, got {times[:4]}")
    is_whole = all(time == int(time) for time in times) and span < MAX_TAXA
    scale = 1.0 if is_whole or not span else MAX_STEPS / span
    steps = [
        {name: None if time is None else round((time - start) * scale) for name, time in of.items()}
        for of in (born, died)
    ]
    taxa = [
        Taxon(
            name,
            ancestors[name],
            born=steps[0][name] or 0,
            operator=row.get("operator") or "",
            weights="",
            died=steps[1][name],
            cause=row.get("cause") or "",
        )
        for name, row in rows.items()
    ]
    return {taxon.id: taxon for taxon in sorted(taxa, key=lambda taxon: taxon.born)}, scale


def _rows(path: Path) -> dict[str, dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = {"id", "ancestor_list"} - set(reader.fieldnames or ())
            if missing:
                raise DataError(
                    f"{path}: expected the columns id and ancestor_list of a phylogeny, "
                    f"{' and '.join(sorted(missing))} missing"
                )
            rows = {str(row["id"]).strip(): row for row in reader}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not rows or len(rows) > MAX_TAXA:
        raise DataError(f"{path}: expected 1 to {MAX_TAXA} lines of a phylogeny, got {len(rows)}")
    return rows


def _ancestors(listed: str, rows: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names in ``[1,2]``; ``[NONE]`` has none, and names not in the file are left
    out."""
    names = (name.strip(" '\"") for name in re.split(r"[,;]", listed.strip().strip("[]")))
    return tuple(dict.fromkeys(name for name in names if name in rows and name.upper() != "NONE"))


def _time(text: str | None) -> float | None:
    """Return a moment; None where none is said, or it never comes."""
    try:
        time = float(text or "")
    except ValueError:
        return None
    return time if math.isfinite(time) else None


def _depths(path: Path, ancestors: Mapping[str, tuple[str, ...]]) -> dict[str, float | None]:
    """Return the number of first ancestors of everyone.

    Raises:
        DataError: somebody descends from itself.
    """
    depths: dict[str, float | None] = {}
    try:
        for name in TopologicalSorter(ancestors).static_order():
            first = ancestors[name][:1]
            depths[name] = (depths[first[0]] or 0.0) + 1 if first else 0.0
    except CycleError as error:
        names = " of ".join(map(str, error.args[1][:4]))
        raise DataError(f"{path}: expected a phylogeny, got {names}: a circle") from error
    return depths
