"""What the page shows of evolution strategies and of selection by exams, as plain values for
JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from symbiont_ecology.history.ascents import ascents_of, band_of, looks_of
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History
from symbiont_ecology.history.variants import (
    Life,
    first_exams,
    gains_of,
    gene_name,
    said_genes,
    staying_of,
    variants_of,
)
from symbiont_ecology.types import OrganelleId

BAND_COLUMNS = ("mean", "low", "high", "best")
"""Columns of a band of rewards or scores."""
MethodsRow = dict[str, Any]


def methods_record(history: History, lives: Sequence[Life], frames: Frames) -> MethodsRow:
    """Steps, looks, exams, what changes were worth, how long variants stay; empty where a run has
    none of them."""
    steps = [asdict(ascent) for ascent in ascents_of(history)]
    scores = [
        {
            "generation": life.generation,
            **dict(zip(BAND_COLUMNS, band_of(tuple(v.fitness for v in life.ranking)), strict=True)),
        }
        for life in lives
    ]
    return {
        "hasEconomy": history.has_economy,
        "ascents": _by_frame(steps, frames),
        "looks": [asdict(look) for look in looks_of(history)],
        "lives": _by_frame(scores, frames),
        "gains": [{**asdict(gain), "name": gene_name(gain.name)} for gain in gains_of(lives)],
        "staying": [asdict(point) for point in staying_of(lives)],
    }


def examined_rows(lives: Sequence[Life]) -> dict[OrganelleId, MethodsRow]:
    """Of everybody who sat an exam: the score, the generation of the first exam, and genes as
    people read them."""
    first = first_exams(lives)
    return {
        variant.id: {
            "score": variant.fitness,
            "accuracy": variant.accuracy,
            "examined": first[variant.id],
            "genes": said_genes(variant.genes),
        }
        for variant in variants_of(lives).values()
    }


def _by_frame(rows: Sequence[MethodsRow], frames: Frames) -> list[MethodsRow]:
    """A row for each frame that has any: means, and the best of all."""
    groups: dict[int, list[MethodsRow]] = {}
    for row in rows:
        if row["generation"] < frames.generations:
            groups.setdefault(frames.at(row["generation"]), []).append(row)
    return [
        {
            **{name: fmean(row[name] for row in group) for name in group[0]},
            "best": max(row["best"] for row in group),
            "generation": frames.ends[frame],
        }
        for frame, group in groups.items()
    ]
