"""Other people's phylogenies: a CSV file in the artificial-life data standard (Lalejini et al.
2019), such as phylotrackpy writes, as a record that the page shows.

The standard asks for ``id`` and ``ancestor_list``; ``origin_time`` and ``destruction_time`` give a
life its length. Without them, a life begins one step after that of its first ancestor. All else of
the file is left alone.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from symbiont_ecology.errors import DataError
from symbiont_ecology.evoscope.berths import berths_of
from symbiont_ecology.evoscope.record import PageRecord, life_row, lives_left_out
from symbiont_ecology.evoscope.sampling import MOST_FRAMES
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.phylogeny import Taxon

STEPS = 1000
"""Moments into which other people's time is cut, if it is not whole numbers."""
MOST_TAXA = 10_000


def phylogeny_record(path: Path) -> PageRecord:
    """The record of a phylogeny; views of anything but descent are empty.

    Raises:
        DataError: it is no such file.
    """
    taxa, scale = _taxa(path)
    latest = max((max(taxon.born, taxon.died or 0) for taxon in taxa.values()), default=-1)
    frames = Frames.of(latest + 1, MOST_FRAMES)
    places = berths_of(taxa)
    population = [
        sum(life.born <= end and (life.died is None or life.died > end) for life in taxa.values())
        for end in frames.ends
    ]
    zeros = [0] * frames.count
    names = ("births", "deaths", "asked", "right", "coverage", "energy", "flops")
    return {
        "schema": 1,
        "isPhylogeny": True,
        "name": path.name,
        "strategy": "phylogeny",
        "host": "unknown",
        "seed": "–",
        "config": "",
        "generations": latest + 1,
        "planned": latest + 1,
        "frames": {"width": frames.width, "ends": frames.ends},
        "curves": {"population": population, **dict.fromkeys(names, zeros)},
        "organelles": [life_row(taxon, places[taxon.id]) for taxon in taxa.values()],
        "books": {
            name: [] for name in ("frame", "who", "revenue", "cost", "rent", "ticket", "balance")
        },
        "acts": {
            **{name: [] for name in ("frame", "who", "cell", "habitat", "asked", "right")},
            "cells": [],
            "habitats": [],
        },
        "transfers": [],
        "prices": {},
        "claims": [],
        "servings": [],
        "kinds": [],
        "trials": [],
        "news": [],
        "replies": [],
        "hostAnswers": [],
        "evaluations": [],
        "leftOut": [
            f"{path.name} says who descends from whom, and nothing else.",
            *lives_left_out(len(taxa)),
            *([] if scale == 1 else [f"A step is {1 / scale:.6g} of its units of time."]),
        ],
    }


def _taxa(path: Path) -> tuple[dict[str, Taxon], float]:
    """Everyone by name, in the order of birth, and steps per unit of time."""
    rows = _rows(path)
    times = {name: _time(row.get("origin_time")) for name, row in rows.items()}
    ends = {name: _time(row.get("destruction_time")) for name, row in rows.items()}
    ancestors = {name: _ancestors(row["ancestor_list"] or "", rows) for name, row in rows.items()}
    order = _in_order(path, ancestors)
    if any(time is None for time in times.values()):
        times = _depths(order, ancestors)
    moments = [time for time in (*times.values(), *ends.values()) if time is not None]
    start, span = min(moments, default=0.0), max(moments, default=0.0) - min(moments, default=0.0)
    if not math.isfinite(span):
        raise DataError(f"{path}: expected times that fit on one scale, got {moments[:4]}")
    is_whole = all(time == int(time) for time in moments) and span < MOST_TAXA
    scale = 1.0 if is_whole or not span else STEPS / span
    taxa = {
        name: Taxon(
            name,
            ancestors[name],
            born=_step(times[name], start, scale),
            operator=rows[name].get("operator") or "",
            weights="",
            died=None if ends[name] is None else _step(ends[name], start, scale),
            cause=rows[name].get("cause") or "",
        )
        for name in rows
    }
    return dict(sorted(taxa.items(), key=lambda entry: entry[1].born)), scale


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
    if not rows or len(rows) > MOST_TAXA:
        raise DataError(f"{path}: expected 1 to {MOST_TAXA} lines of a phylogeny, got {len(rows)}")
    return rows


def _ancestors(listed: str, rows: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """The names in ``[1,2]``; ``[NONE]`` has none, and whoever is not in the file is left out."""
    names = (name.strip(" '\"") for name in re.split(r"[,;]", listed.strip().strip("[]")))
    ids = (name for name in names if name in rows and name.upper() != "NONE")
    return tuple(dict.fromkeys(ids))


def _time(text: str | None) -> float | None:
    """A moment; None where none is said, or it never comes."""
    try:
        time = float(text or "")
    except ValueError:
        return None
    return time if math.isfinite(time) else None


def _step(time: float | None, start: float, scale: float) -> int:
    return round(((time or 0.0) - start) * scale)


def _in_order(path: Path, ancestors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Everyone behind their ancestors.

    Raises:
        DataError: somebody descends from itself.
    """
    try:
        return list(TopologicalSorter(ancestors).static_order())
    except CycleError as error:
        names = " of ".join(map(str, error.args[1][:4]))
        raise DataError(f"{path}: expected a phylogeny, got {names}: a circle") from error


def _depths(
    order: Sequence[str], ancestors: Mapping[str, tuple[str, ...]]
) -> dict[str, float | None]:
    """How many first ancestors everyone has."""
    depths: dict[str, float | None] = {}
    for name in order:
        first = ancestors[name][:1]
        depths[name] = (depths[first[0]] or 0.0) + 1 if first else 0.0
    return depths
