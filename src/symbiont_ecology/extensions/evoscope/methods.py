"""Methods without an economy: steps of evolution strategies, and selection by exams, life after
life. Rows are plain values, as the page has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from symbiont_ecology.base.events import Scored
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.evoscope.history import Frames, History

BAND_PERCENTILES = 20, 80
MAX_PEDIGREE = 60
"""Lives that a pedigree has, before it leaves out those that came to nothing."""
GENE_NAMES = {"learning_rate": "learning rate", "targets": "modules"}
"""Genes that people read under another name."""
TARGETS = ("all", "q and v", "attn", "mlp")
"""Modules that a gene stands for by its number, as in ``hyper.MODULES``."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A training or an adapter with its genes: where they came from, and what came of it."""

    id: OrganelleId
    operator: str
    parents: tuple[OrganelleId, ...]
    genes: Mapping[str, float]
    fitness: float
    accuracy: float


@dataclass(frozen=True)
class Life:
    """The end of a life, in a generation with an exam: everybody alive, the best first, and the
    survivors."""

    number: int
    ranking: tuple[Variant, ...]
    survivors: frozenset[OrganelleId]
    generation: int = 0


def lives_of(history: History) -> list[Life]:
    """Return the lives that have ended, of a run with exams."""
    alive: dict[OrganelleId, Variant] = {}
    asked, right = Counter[OrganelleId](), defaultdict[OrganelleId, float](float)
    lives, acts, place = list[Life](), history.acts, 0
    for event in history.selection:
        while place < len(acts) and acts[place].generation <= event.generation:
            asked[acts[place].id] += acts[place].asked
            right[acts[place].id] += acts[place].right
            place += 1
        if isinstance(event, Scored):
            if not lives or event.generation != lives[-1].generation:
                lives.append(Life(len(lives) + 1, (), frozenset(), event.generation))
            taxon = history.taxa[event.id]
            share = right[taxon.id] / asked[taxon.id] if asked[taxon.id] else float("nan")
            descent = taxon.id, taxon.operator, taxon.ancestors
            alive[taxon.id] = Variant(*descent, taxon.traits, event.score, share)
            ranking = tuple(sorted(alive.values(), key=lambda variant: -variant.fitness))
            lives[-1] = replace(lives[-1], ranking=ranking, survivors=frozenset(alive))
        elif event.id in alive:
            del alive[event.id]
            lives[-1] = replace(lives[-1], survivors=lives[-1].survivors - {event.id})
    return lives


def variants_of(lives: Sequence[Life]) -> dict[OrganelleId, Variant]:
    """Return everybody who sat an exam, in their order, with the last result."""
    return {variant.id: variant for life in lives for variant in life.ranking}


def lesser_lives(history: History) -> set[OrganelleId]:
    """Return those whom a pedigree of many exams leaves out: the dead that left no children."""
    taxa = history.taxa
    if not history.has_exams or len(taxa) <= MAX_PEDIGREE:
        return set()
    parents = {name for taxon in taxa.values() for name in taxon.ancestors}
    return {taxon.id for taxon in taxa.values() if taxon.died is not None} - parents


def said_genes(genes: Mapping[str, float]) -> dict[str, str]:
    """Return genes as people read them: alpha itself, modules by name."""
    texts = {name: f"{value:.3g}" for name, value in genes.items()}
    if "alpha" in genes and "rank" in genes:
        texts["alpha"] = f"{genes['alpha'] * genes['rank']:g}"
    if "targets" in genes:
        texts["targets"] = dict(enumerate(TARGETS)).get(int(genes["targets"]), texts["targets"])
    return {GENE_NAMES.get(name, name): text for name, text in texts.items()}


def methods_record(history: History, lives: Sequence[Life], frames: Frames) -> Row:
    """Return steps, looks and exams; empty where a run has none of them."""
    return {
        "hasEconomy": history.has_economy,
        "ascents": _by_frame(step_rows(history), frames),
        "looks": look_rows(history),
        "lives": _by_frame(
            [
                {"generation": life.generation, **_band([one.fitness for one in life.ranking])}
                for life in lives
            ],
            frames,
        ),
    }


def examined_rows(lives: Sequence[Life]) -> dict[OrganelleId, Row]:
    """Return score, first exam and genes of everybody who sat an exam."""
    first = {variant.id: life.generation for life in reversed(lives) for variant in life.ranking}
    return {
        variant.id: {
            "score": variant.fitness,
            "accuracy": variant.accuracy,
            "examined": first[variant.id],
            "genes": said_genes(variant.genes),
        }
        for variant in variants_of(lives).values()
    }


def step_rows(history: History) -> list[Row]:
    """Return all steps of evolution strategies in whole generations: rewards of the members, mean
    length of answers (tokens), share without text, step ÷ noise, noise ÷ ‖W‖."""
    return [
        {
            "generation": event.generation,
            **_band(event.rewards),
            **{name: getattr(event, name) for name in ("tokens", "empty", "step", "noise")},
        }
        for event in history.ascents
        if event.generation < history.generation and event.rewards
    ]


def look_rows(history: History) -> list[Row]:
    """Return shares of right answers of the centre and of the bare host to the same questions."""
    verdicts: dict[int, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for event in history.probes:
        if history.ascents and event.generation < history.generation:
            verdicts[event.generation][event.id == HOST] += event.verdicts
    return [
        {
            "generation": generation,
            "centre": fmean(by_host[False]),
            "host": fmean(by_host[True]),
            "questions": len(by_host[False]),
        }
        for generation, by_host in verdicts.items()
        if all(by_host.values())
    ]


def _band(values: Sequence[float]) -> Row:
    """Return the mean, the edges of a band, and the best."""
    low, high = np.percentile(values, BAND_PERCENTILES)
    return {"mean": fmean(values), "low": float(low), "high": float(high), "best": max(values)}


def _by_frame(rows: Sequence[Row], frames: Frames) -> list[Row]:
    """Return a row for each frame that has any: means, and the best of all."""
    groups = defaultdict[int, list[Row]](list)
    for row in rows:
        if row["generation"] < frames.generations:
            groups[frames.at(row["generation"])].append(row)
    return [
        {
            **{name: fmean(row[name] for row in group) for name in group[0]},
            "best": max(row["best"] for row in group),
            "generation": frames.ends[frame],
        }
        for frame, group in groups.items()
    ]
