"""A run as the record that the page shows: plain values for JSON, sampled where the run is long.
What is left out is said on the page.

Columns that belong together have one length. ``frame`` numbers frames, ``who``, ``cell`` and
``user`` number names in their lists. Energy is in mATP.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.registry import kind_of
from symbiont_ecology.base.transcripts import TRANSCRIPTS_FILE, Transcript, read_transcripts
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.evaluate.evaluation_log import logged
from symbiont_ecology.extensions.evoscope.adapters import adapter_measures
from symbiont_ecology.extensions.evoscope.history import Frames, History, Taxon
from symbiont_ecology.extensions.evoscope.methods import (
    examined_rows,
    lesser_lives,
    lives_of,
    methods_record,
)
from symbiont_ecology.extensions.evoscope.news import News
from symbiont_ecology.run.budget import is_complete
from symbiont_ecology.run.config import dump_config
from symbiont_ecology.run.open_run import JOURNAL_FILE, lived_seconds

MAX_FRAMES, MAX_ACTS, MAX_NEWS, MAX_REPLIES = 600, 120_000, 4_000, 3_000
"""Moments that the slider knows, rows of answers, news, replies."""
MAX_TEXT = 400
"""Characters of a prompt or a reply."""
MAX_TREE = 400
"""Lives in the tree; as ``TREE_SHOWN`` in lineage.js."""
MAX_COLOURED = 12
"""Organelles with a colour of their own: those that answered most."""
REPLIES_EACH = 6
"""Right and wrong replies of every organelle, and of every user, that come before others."""
LESSER_NEWS = ("body", "move", "trial")
"""News that are left out first."""
SPARE_PLACES = 6
"""Free places of the canvas beyond those in use that a child may choose from."""
PageRecord = dict[str, Any]
Place = tuple[float, float]
"""x and y on the canvas, in distances of neighbours; the centre is (0, 0)."""


def run_record(history: History) -> PageRecord:
    """Return what the page shows of a run."""
    config, folder = history.config, history.folder
    kept = read_transcripts(folder / TRANSCRIPTS_FILE)
    practice = [one for one in kept if one.purpose == "practice"]
    replies = chosen_replies(practice)
    is_served = (folder / JOURNAL_FILE).exists()
    state = load_state(folder) if (folder / STATE_FILE).exists() else None
    seconds = lived_seconds(folder) if config.run.train_seconds is not None else 0.0
    record = log_record(history)
    measures = adapter_measures(state, folder) if state else {}
    for row in record["organelles"]:
        row["body"] = measures.get(row["id"])
    return {
        "name": history.name,
        "strategy": kind_of(config.strategy),
        "host": config.host.model,
        "seed": config.seed,
        "config": dump_config(config),
        "planned": None if is_served else config.run.generations,
        "isComplete": not is_served and state is not None and is_complete(config, state, seconds),
        "replies": list(map(_reply_row, replies)),
        "evaluations": _evaluation_rows(folder),
        **record,
        "leftOut": record["leftOut"] + _replies_left_out(len(replies), len(practice)),
    }


def log_record(history: History) -> PageRecord:
    """Return what the page shows of a log."""
    frames = Frames.of(history.generation, MAX_FRAMES)
    news, lives = history.news(), lives_of(history)
    chosen, (acts, acts_left_out) = chosen_news(news), _act_columns(history, frames)
    organelles = _organelle_rows(history)
    for organelle_id, row in examined_rows(lives).items():
        organelles[organelle_id] |= row
    for organelle_id in lesser_lives(history):
        organelles[organelle_id]["isLesser"] = True
    left_out = _log_left_out(history, frames, (len(chosen), len(news)))
    return {
        "generations": history.generation,
        "frames": {"width": frames.width, "ends": frames.ends},
        "curves": _curves(history, frames),
        "organelles": list(organelles.values()),
        "books": _book_columns(history, frames),
        "transfers": [asdict(transfer) for transfer in history.flows.transfers],
        "acts": acts,
        "claims": [asdict(claim) for claim in history.claims],
        "servings": [asdict(change) for change in history.servings],
        "kinds": [asdict(change) for change in history.kinds()],
        "trials": [{**asdict(t), "evidence": t.evidence} for t in history.trials.values()],
        "news": [{**asdict(one), "text": one.text[:MAX_TEXT]} for one in chosen],
        "hostAnswers": [
            {"cell": event.cell, "asked": len(event.verdicts), "right": sum(event.verdicts)}
            for event in history.host_answers
        ],
        "leftOut": left_out + acts_left_out,
        **methods_record(history, lives, frames),
    }


def _organelle_rows(history: History) -> dict[OrganelleId, PageRecord]:
    taxa, places = history.taxa, canvas_places(history.taxa)
    colours = {name: number for number, name in enumerate(history.busiest()[:MAX_COLOURED])}
    return {
        taxon.id: {
            "id": taxon.id,
            "parents": taxon.ancestors,
            **{name: getattr(taxon, name) for name in ("operator", "born", "died", "cause")},
            "traits": dict(taxon.traits),
            "place": [round(part, 4) for part in places[taxon.id]],
            "ranks": history.ranks.get(taxon.id, []),
            "lessons": history.lessons[taxon.id],
            "colour": colours.get(taxon.id, -1),
            "body": None,
        }
        for taxon in taxa.values()
    }


def canvas_places(taxa: Mapping[OrganelleId, Taxon]) -> dict[OrganelleId, Place]:
    """Return everyone's place on the canvas, of a hexagonal lattice, for a whole life.

    A newborn takes the free place next to its first parent, or the one nearest to the centre. So
    bodies never overlap, and relatives are neighbours. Places of the dead are taken again.
    """
    lattice = _lattice(len(taxa) + SPARE_PLACES)
    taken, places = dict[OrganelleId, int](), dict[OrganelleId, Place]()
    for taxon in sorted(taxa.values(), key=lambda life: life.born):
        taken = {
            name: number
            for name, number in taken.items()
            if (died := taxa[name].died) is None or died >= taxon.born
        }
        used = set(taken.values())
        free = [number for number in range(len(used) + SPARE_PLACES) if number not in used]
        near = [lattice[taken[parent]] for parent in taxon.ancestors if parent in taken]
        home = near[0] if near else (0.0, 0.0)
        place = min(free, key=lambda number: (round(math.dist(lattice[number], home), 6), number))
        taken[taxon.id], places[taxon.id] = place, lattice[place]
    return places


def _lattice(count: int) -> list[Place]:
    """Return places of a hexagonal lattice, the nearest to the centre first."""
    reach = math.isqrt(count) + 1
    places = [
        (column + row / 2, row * math.sqrt(3) / 2)
        for row in range(-reach, reach + 1)
        for column in range(-2 * reach, 2 * reach + 1)
    ]
    return sorted(places, key=lambda place: (round(math.hypot(*place), 6), math.atan2(*place)))


def _curves(history: History, frames: Frames) -> PageRecord:
    """Return what was there at the end of each frame, and sums over it."""
    last = [history.ends[generation] for generation in frames.ends]
    acts = history.whole_acts
    at = np.array([frames.at(act.generation) for act in acts], int)
    ends_at = np.array([frames.at(end.generation) for end in history.ends], int)

    def sums(where: np.ndarray, values: Iterable[float]) -> np.ndarray:
        return np.bincount(where, list(values), frames.count)

    return {
        "population": [end.population for end in last],
        "births": sums(ends_at, (end.births for end in history.ends)).astype(int).tolist(),
        "deaths": sums(ends_at, (end.deaths for end in history.ends)).astype(int).tolist(),
        "asked": sums(at, (act.asked for act in acts)).astype(int).tolist(),
        "right": np.round(sums(at, (act.right for act in acts)), 3).tolist(),
        "coverage": [end.coverage for end in last],
        "energy": [end.energy_total for end in last],
        "flops": [end.train_flops for end in last],
    }


def _book_columns(history: History, frames: Frames) -> dict[str, list[Any]]:
    """Return of every organelle in every frame sums of what it earned and spent, and what it owned
    at the end."""
    numbers = {name: number for number, name in enumerate(history.taxa)}
    rows = defaultdict[tuple[int, int], list[int]](lambda: [0, 0, 0, 0, 0])
    for book in history.whole_books:
        row = rows[frames.at(book.generation), numbers[book.id]]
        for place, amount in enumerate((book.revenue, book.cost, book.rent, book.ticket)):
            row[place] += amount
    for frame, end in enumerate(frames.ends):
        for name, balance in history.balances[end].items():
            if name in numbers:
                rows[frame, numbers[name]][4] = balance
    names = ("frame", "who", "revenue", "cost", "rent", "ticket", "balance")
    return _columns(names, [[*key, *row] for key, row in sorted(rows.items())])


def _act_columns(history: History, frames: Frames) -> tuple[PageRecord, list[str]]:
    """Return sums of answers by frame, organelle, cell and user, and sentences on what is left out:
    frames get coarser, down to one, and then the rows with fewest answers go."""
    acts = history.whole_acts
    numbers = {name: number for number, name in enumerate(history.taxa)}
    cells = {cell: number for number, cell in enumerate(dict.fromkeys(act.cell for act in acts))}
    asking = dict.fromkeys(act.user for act in acts if act.user)
    users = {user: number for number, user in enumerate(asking)}
    width, left_out = frames.width, list[str]()
    while True:
        rows = defaultdict[tuple[int, int, int, int], list[float]](lambda: [0, 0.0])
        for act in acts:
            frame, who = frames.at(act.generation // width * width), numbers.get(act.id, -1)
            row = rows[frame, who, cells[act.cell], users.get(act.user, -1)]
            row[0] += act.asked
            row[1] += act.right
        if len(rows) <= MAX_ACTS or width >= history.generation:
            break
        width *= 2
    if width > frames.width:
        left_out.append("Who was asked what is shown in longer steps than the rest.")
    kept = list(rows.items())
    if len(kept) > MAX_ACTS:
        kept = sorted(kept, key=lambda entry: entry[1][0], reverse=True)[:MAX_ACTS]
        rule = "those with most answers"
        left_out.append(f"{MAX_ACTS} of {len(rows)} rows of who was asked what are shown: {rule}.")
    names = ("frame", "who", "cell", "user", "asked", "right")
    columns = _columns(names, [[*key, asked, _short(right)] for key, (asked, right) in kept])
    return {**columns, "cells": list(cells), "users": list(users)}, left_out


def _evaluation_rows(folder: Path) -> list[PageRecord]:
    try:
        lines = list(logged(folder))
    except RunError:  # of another version
        return []
    return [
        {"generation": one.generation, "routing": one.routing, "accuracy": asdict(one.accuracy)}
        for one in lines
    ]


def _reply_row(transcript: Transcript) -> PageRecord:
    return {
        name: value[:MAX_TEXT] if isinstance(value, str) else value
        for name, value in vars(transcript).items()
    }


def chosen_news(news: Sequence[News], max_count: int = MAX_NEWS) -> list[News]:
    """Return all news, or as many: lesser ones are thinned out evenly, then all others."""
    chosen = list(news)
    for kinds in [{kind} for kind in LESSER_NEWS] + [{item.kind for item in news}]:
        places = [place for place, item in enumerate(chosen) if item.kind in kinds]
        over = min(max(len(chosen) - max_count, 0), len(places))
        left_out = {places[len(places) * number // over] for number in range(over)}
        chosen = [item for place, item in enumerate(chosen) if place not in left_out]
    return chosen


def chosen_replies(
    transcripts: Sequence[Transcript], max_count: int = MAX_REPLIES, each: int = REPLIES_EACH
) -> list[Transcript]:
    """Return the newest right and wrong replies of everyone, then those to every user, then the
    newest of all; in the order of the run."""
    chosen: dict[int, None] = {}
    for key in ("id", "user"):
        groups = defaultdict[tuple[str, bool], list[int]](list)
        for place, transcript in enumerate(transcripts):
            groups[getattr(transcript, key), transcript.is_right].append(place)
        for places in groups.values():
            chosen.update(dict.fromkeys(places[-each:]))
    chosen.update(dict.fromkeys(range(len(transcripts) - 1, -1, -1)))
    return [transcripts[place] for place in sorted(list(chosen)[:max_count])]


def _log_left_out(history: History, frames: Frames, news: tuple[int, int]) -> list[str]:
    """Return sentences on what the page does not hold; of news, how many are shown of how many."""
    notes = []
    if frames.width > 1:
        notes.append(
            f"{frames.generations} generations are shown in {frames.count} steps of "
            f"{frames.width}: a step has the sums of its generations, and balances of its last."
        )
    if news[0] < news[1]:
        rule = f"above {MAX_NEWS} the lesser ones are thinned out"
        notes.append(f"{news[0]} of {news[1]} news are shown: {rule}.")
    lives, lesser = len(history.taxa), len(lesser_lives(history))
    if lesser and lives - lesser <= MAX_TREE:
        rule = "those with children, and the living"
        notes.append(f"The tree shows {lives - lesser} of {lives} lives: {rule}.")
    elif lives > MAX_TREE:
        rule = "those that answered most, and their ancestors"
        notes.append(f"The tree shows {MAX_TREE} of {lives} lives: {rule}.")
    return notes


def _replies_left_out(shown: int, count: int) -> list[str]:
    note = f"{shown} of {count} replies are on the page, mostly the newest."
    return [note] if shown < count else []


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return dict(zip(names, map(list, columns), strict=True))


def _short(number: float) -> float | int:
    return int(number) if number == int(number) else round(number, 3)
