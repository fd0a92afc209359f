"""A run as the record that the page shows: plain values for JSON, sampled where the run is long.

Columns that belong together have one length. ``frame`` numbers frames, ``who``, ``cell`` and
``habitat`` number names in their lists. Energy is in mATP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.config import RunConfig, dump_config
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.state import STATE_FILE, load_state
from symbiont_ecology.engine.budget import is_complete
from symbiont_ecology.engine.living import JOURNAL_FILE, lived_seconds
from symbiont_ecology.errors import RunError
from symbiont_ecology.evaluation.evaluation_log import logged
from symbiont_ecology.evoscope.berths import berths_of
from symbiont_ecology.evoscope.bodies import Body, bodies_of
from symbiont_ecology.evoscope.methods import examined_rows, methods_record
from symbiont_ecology.evoscope.sampling import (
    MOST_ACTS,
    MOST_FRAMES,
    MOST_NEWS,
    chosen_news,
    chosen_replies,
)
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History
from symbiont_ecology.history.phylogeny import Taxon
from symbiont_ecology.history.variants import Life, lesser_lives, lives_of
from symbiont_ecology.history.world import kinds_of, world_news
from symbiont_ecology.registry import kind_of
from symbiont_ecology.transcripts import Transcripts
from symbiont_ecology.types import OrganelleId

RECORD_SCHEMA = 1
LONGEST_TEXT = 400
"""Characters of a prompt or a reply on the page."""
LIVES_IN_TREE = 400
"""Lives in the tree; as ``TREE_SHOWN`` in lineage.js."""
COLOURED = 12
"""Organelles with a colour of their own: those that answered most."""
PageRecord = dict[str, Any]
AskHost = Callable[[Path, Sequence[str]], Mapping[str, str]]
"""The bare host's replies to the prompts of the run in a folder."""


def run_record(
    history: History,
    config: RunConfig,
    folder: Path,
    kept: Transcripts,
    ask_host: AskHost | None = None,
) -> PageRecord:
    """What the page shows of a run; ``ask_host`` gives the bare host's replies by prompt."""
    frames = Frames.of(history.generation, MOST_FRAMES)
    kinds = kinds_of(config, history.generation)
    told = [*world_news(config, kinds, history.ends), *history.chronicle.news]
    told.sort(key=lambda item: item.generation)
    news = [item for item in told if item.generation < history.generation]
    chosen = chosen_news(news)
    practice = [transcript for transcript in kept.transcripts if transcript.purpose == "practice"]
    replies = chosen_replies(practice)
    beside = ask_host(folder, [reply.prompt for reply in replies]) if ask_host else {}
    acts, acts_left_out = _acts(history, frames)
    lives, is_served = lives_of(history), (folder / JOURNAL_FILE).exists()
    state = load_state(folder) if (folder / STATE_FILE).exists() else None
    record: PageRecord = {
        "schema": RECORD_SCHEMA,
        "name": folder.resolve().name,
        "strategy": kind_of(config.strategy),
        "host": config.host.model,
        "seed": config.seed,
        "config": dump_config(config),
        "generations": history.generation,
        "planned": None if is_served else config.run.generations,
        "isComplete": not is_served and state is not None and _is_complete(config, state, folder),
        "frames": {"width": frames.width, "ends": frames.ends},
        "curves": _curves(history, frames),
        "organelles": _organelles(history, lives, bodies_of(state, folder) if state else {}),
        "books": _books(history, frames),
        "transfers": [asdict(transfer) for transfer in history.flows.transfers],
        "acts": acts,
        "prices": _prices(history, frames),
        "claims": [asdict(claim) for claim in history.claims],
        "servings": [asdict(change) for change in history.servings],
        "kinds": [asdict(change) for change in kinds],
        "trials": [{**asdict(t), "evidence": t.evidence} for t in history.trials.values()],
        "news": [{**asdict(item), "text": item.text[:LONGEST_TEXT]} for item in chosen],
        "replies": [_reply(vars(reply), beside) for reply in replies],
        "hostAnswers": [
            {"cell": event.cell, "asked": len(event.verdicts), "right": sum(event.verdicts)}
            for event in history.host_answers
        ],
        "evaluations": _evaluations(folder),
        "leftOut": _left_out(frames, (len(chosen), len(news)), kept, (len(replies), len(practice)))
        + acts_left_out
        + (_lesser_left_out(history) or lives_left_out(len(history.phylogeny.taxa))),
        **methods_record(history, lives, frames),
    }
    return record


def _is_complete(config: RunConfig, state: EcologyState, folder: Path) -> bool:
    """Whether a run has had its generations, or spent its budget."""
    seconds = 0.0 if config.run.train_seconds is None else lived_seconds(folder)
    return is_complete(config, state, seconds)


def _organelles(
    history: History, lives: Sequence[Life], bodies: Mapping[OrganelleId, Body]
) -> list[PageRecord]:
    taxa, places = history.phylogeny.taxa, berths_of(history.phylogeny.taxa)
    colours = {name: number for number, name in enumerate(history.busiest()[:COLOURED])}
    examined, lesser = examined_rows(lives), lesser_lives(history)
    return [
        {
            **life_row(taxon, [round(part, 4) for part in places[taxon.id]]),
            "traits": history.traits[taxon.id],
            "ranks": history.ranks[taxon.id],
            "lessons": history.lessons[taxon.id],
            "colour": colours.get(taxon.id, -1),
            "body": asdict(bodies[taxon.id]) if taxon.id in bodies else None,
            **examined.get(taxon.id, {}),
            **({"isLesser": True} if taxon.id in lesser else {}),
        }
        for taxon in taxa.values()
    ]


def life_row(taxon: Taxon, place: Sequence[float]) -> PageRecord:
    """A life as the page knows it, with nothing but its descent."""
    descent = {"id": taxon.id, "parents": taxon.ancestors, "operator": taxon.operator}
    life = {"born": taxon.born, "died": taxon.died, "cause": taxon.cause, "place": place}
    unknown = {"traits": {}, "ranks": [], "lessons": 0, "colour": -1, "body": None}
    return {**descent, **life, **unknown}


def _curves(history: History, frames: Frames) -> PageRecord:
    """Of each frame: what was there at its end, sums over it, and the share of right answers."""
    last = [history.ends[generation] for generation in frames.ends]
    acts = [act for act in history.acts if act.generation < history.generation]
    at = np.array([frames.at(act.generation) for act in acts], int)
    asked = np.bincount(at, [act.asked for act in acts], frames.count)
    right = np.bincount(at, [act.right for act in acts], frames.count)
    births, deaths = np.zeros(frames.count, int), np.zeros(frames.count, int)
    for end in history.ends:
        births[frames.at(end.generation)] += end.births
        deaths[frames.at(end.generation)] += end.deaths
    return {
        "population": [end.population for end in last],
        "births": births.tolist(),
        "deaths": deaths.tolist(),
        "asked": asked.astype(int).tolist(),
        "right": np.round(right, 3).tolist(),
        "coverage": [end.coverage for end in last],
        "energy": [end.energy_total for end in last],
        "flops": [end.train_flops for end in last],
    }


def _books(history: History, frames: Frames) -> dict[str, list[int]]:
    """Of every organelle in every frame: sums of what it earned and spent, and what it owned at
    the end."""
    numbers = {name: number for number, name in enumerate(history.phylogeny.taxa)}
    rows: dict[tuple[int, int], list[int]] = {}
    for book in history.books:
        if book.generation >= history.generation:
            break
        row = rows.setdefault((frames.at(book.generation), numbers[book.id]), [0, 0, 0, 0, 0])
        for place, amount in enumerate((book.revenue, book.cost, book.rent, book.ticket)):
            row[place] += amount
    for frame, end in enumerate(frames.ends):
        for name, balance in history.balances[end].items():
            if name in numbers:
                rows.setdefault((frame, numbers[name]), [0, 0, 0, 0, 0])[4] = balance
    names = ("frame", "who", "revenue", "cost", "rent", "ticket", "balance")
    table = [[*key, *row] for key, row in sorted(rows.items())]
    return dict(zip(names, _columns(table, len(names)), strict=True))


def _acts(history: History, frames: Frames) -> tuple[PageRecord, list[str]]:
    """Who was asked what in every frame, and what the table does not hold, in sentences: its frames
    get coarser, down to one, and then the rows with least answers go."""
    numbers = {name: number for number, name in enumerate(history.phylogeny.taxa)}
    cells, habitats = dict[str, int](), dict[str, int]()
    width = frames.width
    while True:
        rows: dict[tuple[int, int, int, int], list[float]] = {}
        for act in history.acts:
            if act.generation >= history.generation:
                break
            cell = cells.setdefault(act.cell, len(cells))
            habitat = habitats.setdefault(act.habitat, len(habitats)) if act.habitat else -1
            frame = frames.at(act.generation // width * width)
            row = rows.setdefault((frame, numbers.get(act.id, -1), cell, habitat), [0, 0.0])
            row[0] += act.asked
            row[1] += act.right
        if len(rows) <= MOST_ACTS or width >= history.generation:
            break
        width *= 2
    left_out = []
    if width > frames.width:
        left_out.append("Who was asked what is shown in longer steps than the rest.")
    kept = list(rows.items())
    if len(kept) > MOST_ACTS:
        kept = sorted(kept, key=lambda entry: entry[1][0], reverse=True)[:MOST_ACTS]
        rule = "those with most answers"
        left_out.append(f"{MOST_ACTS} of {len(rows)} rows of who was asked what are shown: {rule}.")
    names = ("frame", "who", "cell", "habitat", "asked", "right")
    table = [[*key, row[0], _short(row[1])] for key, row in kept]
    columns = dict(zip(names, _columns(table, len(names)), strict=True))
    return {**columns, "cells": list(cells), "habitats": list(habitats)}, left_out


def _prices(history: History, frames: Frames) -> PageRecord:
    """What a full reward paid, in each niche, whenever that changed: the last of each frame."""
    latest: dict[str, dict[int, int]] = {}
    for act in history.acts:
        if act.generation >= history.generation:
            break
        niche = act.habitat or act.cell
        latest.setdefault(niche, {})[frames.at(act.generation)] = math.floor(act.price)
    changes: PageRecord = {}
    for niche, by_frame in latest.items():
        points, before = list[list[int]](), -1
        for frame, price in by_frame.items():
            if price != before:
                points.append([frame, price])
                before = price
        changes[niche] = points
    return changes


def _evaluations(folder: Path) -> list[PageRecord]:
    try:
        lines = [line for _, line in logged(folder)]
    except RunError:  # of another version
        return []
    return [
        {
            "generation": line.generation,
            "routing": line.routing,
            "accuracy": asdict(line.accuracy),
            "asked": line.asked.model_dump(mode="json", exclude_defaults=True),
        }
        for line in lines
    ]


def _reply(transcript: Mapping[str, Any], beside: Mapping[str, str]) -> PageRecord:
    row = {
        name: value[:LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in transcript.items()
    }
    if (reply := beside.get(transcript["prompt"])) is not None:
        row["host"] = reply[:LONGEST_TEXT]
    return row


def _left_out(
    frames: Frames, news: tuple[int, int], transcripts: Transcripts, replies: tuple[int, int]
) -> list[str]:
    """What the page does not hold, in sentences; of news and replies, how many are shown of how
    many."""
    notes = []
    if frames.width > 1:
        notes.append(
            f"{frames.generations} generations are shown in {frames.count} steps of "
            f"{frames.width}: a step has the sums of its generations, and balances of its last."
        )
    if news[0] < news[1]:
        rule = f"above {MOST_NEWS} the lesser ones are thinned out"
        notes.append(f"{news[0]} of {news[1]} news are shown: {rule}.")
    if transcripts.one_in > 1:
        notes.append(f"The run kept one reply in {transcripts.one_in}, by draw.")
    if replies[0] < replies[1]:
        notes.append(f"{replies[0]} of {replies[1]} replies are on the page, mostly the newest.")
    return notes


def _lesser_left_out(history: History) -> list[str]:
    """What the pedigree of a run with exams does not hold."""
    all_of_them, lesser = len(history.phylogeny.taxa), len(lesser_lives(history))
    if not lesser or all_of_them - lesser > LIVES_IN_TREE:
        return []
    rule = "those with children, and the living"
    return [f"The tree shows {all_of_them - lesser} of {all_of_them} lives: {rule}."]


def lives_left_out(lives: int) -> list[str]:
    """What the tree does not hold."""
    if lives <= LIVES_IN_TREE:
        return []
    rule = "those that answered most, and their ancestors"
    return [f"The tree shows {LIVES_IN_TREE} of {lives} lives: {rule}."]


def _columns(table: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*table, strict=True)] or [[] for _ in range(count)]


def _short(number: float) -> float | int:
    return int(number) if number == int(number) else round(number, 3)
