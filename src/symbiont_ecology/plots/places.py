"""Views of where answers are wanted: who serves whom, cells through time, the archive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.errors import ConfigError
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import Act, Claim, History
from symbiont_ecology.plots.drawing import (
    CHANGES_MARKED,
    MOST_COLUMNS,
    SMALL,
    answer_sums,
    colours_of,
    head,
    label,
    mark_changes,
    name_colours,
    new_axes,
    percentages,
    row_axis,
    row_height,
    say,
    time_axis,
    whole_acts,
)
from symbiont_ecology.plots.palette import HEAT, OTHERS_COLOUR
from symbiont_ecology.types import OrganelleId

NOBODY_ASKED = "Nobody was asked anything yet."
HEAT_UNITS = {
    "right": "right answers, %",
    "price": "price of a right answer, ATP",
    "asked": "answers per generation",
}
"""What a heat map of cells can show, and in which unit."""
HEAT_TITLES = {"right": "Right answers", "price": "Prices", "asked": "Answers"}
ACROSS, MOST_HELD = 8, 200
"""Columns of the archive of users; places of an archive that are shown."""
HEAT_COLUMNS = 60


@dataclass(frozen=True)
class ServingBar:
    """A place is served by an organelle. ``end`` is the generation in which another one took over:
    that one answers from the next generation on."""

    place: str
    id: OrganelleId
    begin: int
    end: int


def servers(history: History, ax: Axes | Figure | None = None, changes: Iterable[int] = ()) -> Axes:
    """Who serves whom: a row for every user, a colour for every organelle.

    Where there are no users, rows are cells, and a colour says who answered most there. Dotted
    lines stand at the generations ``changes``, in which the world changed.
    """
    title, has_users = "Who serves whom", bool(history.servings)
    bars = servings_of(history) if has_users else _most_active(history)
    if not bars:
        return say(new_axes(ax), title, NOBODY_ASKED)
    names = _by_last_server(bars) if has_users else sorted({bar.place for bar in bars})
    ax = new_axes(ax, row_height(len(names), least=3.4))  # room for the legend
    rows, colours = {name: row for row, name in enumerate(names)}, colours_of(history)
    for bar in bars:
        colour = colours.get(bar.id, OTHERS_COLOUR)
        span = (bar.begin, bar.end - bar.begin)
        ax.broken_barh([span], (rows[bar.place] - 0.42, 0.84), color=colour)
    mark_changes(ax, moments := list(changes))
    row_axis(ax, names)
    time_axis(ax, history)
    name_colours(ax, [bar.id for bar in bars], colours, "others")
    unit = "a row for every user, a colour for the organelle that serves it"
    unit = unit if has_users else "for every cell the organelle that answered most there"
    head(ax, title, unit + (CHANGES_MARKED if moments else ""))
    return ax


def servings_of(history: History) -> list[ServingBar]:
    """Who served each user from when to when, in whole generations."""
    open_bars, bars = dict[str, ServingBar](), list[ServingBar]()
    changes = [change for change in history.servings if change.generation < history.generation]
    for change in changes:
        if before := open_bars.pop(change.habitat, None):
            bars.append(ServingBar(before.place, before.id, before.begin, change.generation))
        if change.id:
            end = history.generation
            open_bars[change.habitat] = ServingBar(
                change.habitat, change.id, change.generation, end
            )
    return [*bars, *open_bars.values()]


def cells(
    history: History, ax: Axes | Figure | None = None, *, rows: str = "cell", measure: str = "right"
) -> Axes:
    """A heat map through time.

    Args:
        history: the run.
        ax: where to draw.
        rows: ``"cell"``, or ``"user"`` for a row per user.
        measure: ``"right"``, ``"price"`` or ``"asked"``.

    Raises:
        ConfigError: other rows or another measure.
    """
    if rows not in ("cell", "user"):
        raise ConfigError(f"rows: expected 'cell' or 'user', got {rows!r}")
    if measure not in HEAT_UNITS:
        raise ConfigError(f"measure: expected one of {', '.join(HEAT_UNITS)}, got {measure!r}")
    title = f"{HEAT_TITLES[measure]} by {rows}"
    columns = Frames.of(history.generation, HEAT_COLUMNS)
    values = _heat(history, columns, rows, measure)
    if not values:
        return say(new_axes(ax), title, _why_empty(history, rows))
    names = sorted(values, key=_by_number)
    ax = new_axes(ax, row_height(len(names)))
    edges = np.arange(len(names) + 1) - 0.5
    low, high = {"right": (0, 100), "asked": (0, None), "price": (None, None)}[measure]
    table = np.ma.masked_invalid([values[name] for name in names])
    mesh = ax.pcolormesh(columns.edges, edges, table, cmap=HEAT, vmin=low, vmax=high)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.set_label(HEAT_UNITS[measure])
    bar.outline.set_visible(False)
    row_axis(ax, names)
    time_axis(ax, history)
    head(ax, title, f"{HEAT_UNITS[measure]}; white: nothing was asked")
    return ax


def archive(
    history: History, ax: Axes | Figure | None = None, generation: int | None = None
) -> Axes:
    """Who holds which place of the archive after a generation (the last one, if it is left out);
    the colour is the success rate when it was taken."""
    title, now = "Archive", history.generation - 1 if generation is None else generation
    last = {
        claim.cell: claim
        for claim in history.claims
        if claim.generation <= now and claim.generation < history.generation
    }
    claims = [last[name] for name in sorted(last, key=_by_number) if last[name].id][:MOST_HELD]
    if not claims:
        return say(new_axes(ax), title, "Nobody holds a place of the archive at this time.")
    rows, columns, places = _archive_grid(claims, {act.cell for act in history.acts})
    ax = new_axes(ax, row_height(2 * len(rows), least=2.6))
    table = np.full((len(rows), len(columns)), np.nan)
    for claim, (row, column) in zip(claims, places, strict=True):
        table[row, column] = claim.score
    mesh = ax.imshow(np.ma.masked_invalid(table), cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    for claim, (row, column) in zip(claims, places, strict=True):
        text = label(claim.id) if any(rows) else f"{label(claim.cell)}\n{label(claim.id)}"
        ink = "black" if claim.score > 0.55 else "white"
        ax.text(column, row, text, ha="center", va="center", fontsize=SMALL - 1, color=ink)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.set_label("success rate when taken")
    bar.outline.set_visible(False)
    ax.set_yticks(range(len(rows)), [label(name) for name in rows], fontsize=SMALL)
    ax.set_xticks(range(len(columns)), [label(name) for name in columns], fontsize=SMALL)
    ax.tick_params(length=0)
    more = len([claim for claim in last.values() if claim.id]) - len(claims)
    head(ax, title, f"who holds what after generation {now}" + (f"; {more} more" if more else ""))
    return ax


def _archive_grid(
    claims: Sequence[Claim], cells_asked: set[str]
) -> tuple[list[str], list[str], list[tuple[int, int]]]:
    """Names of rows, names of columns, and the place of every claim: cells are family by depth,
    users fill rows in the order of their names."""
    if all(claim.cell in cells_asked for claim in claims):
        parts = [claim.cell.rpartition("/")[::2] for claim in claims]
        rows, columns = (list(dict.fromkeys(names)) for names in zip(*parts, strict=True))
        return rows, columns, [(rows.index(row), columns.index(depth)) for row, depth in parts]
    across = min(ACROSS, len(claims))
    places = [divmod(number, across) for number in range(len(claims))]
    return [""] * (places[-1][0] + 1), [""] * across, places


def _most_active(history: History) -> list[ServingBar]:
    """For every cell who answered most in each column of time; equal neighbours are one bar."""
    columns = Frames.of(history.generation, MOST_COLUMNS)
    sums = answer_sums(history, columns, lambda act: f"{act.cell}\n{act.id}")
    by_cell: dict[str, dict[str, np.ndarray]] = {}
    for key, rows in sums.items():
        cell, _, server = key.rpartition("\n")
        by_cell.setdefault(cell, {})[server] = rows[0]
    bars = list[ServingBar]()
    for cell, asked in by_cell.items():
        names, table = list(asked), np.array(list(asked.values()))
        for column in np.flatnonzero(table.any(axis=0)):
            server = names[int(table[:, column].argmax())]
            begin, end = map(int, columns.edges[column : column + 2])
            last = bars[-1] if bars else None
            if last and (last.place, last.id, last.end) == (cell, server, begin):
                bars[-1] = ServingBar(cell, server, last.begin, end)
            else:
                bars.append(ServingBar(cell, server, begin, end))
    return bars


def _by_last_server(bars: Sequence[ServingBar]) -> list[str]:
    """Users with the same last server beside each other."""
    last: dict[str, ServingBar] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin):
        last[bar.place] = bar
    return sorted(last, key=lambda name: (_by_number(last[name].id), _by_number(name)))


def _heat(history: History, columns: Frames, rows: str, measure: str) -> dict[str, np.ndarray]:
    """The measure by name and column of time; NaN where nothing was asked."""

    def name_of(act: Act) -> str:
        """Its row."""
        return act.cell if rows == "cell" else act.habitat

    if measure == "price":
        prices: dict[str, np.ndarray] = {}
        for act in whole_acts(history):
            niche = act.habitat or act.cell
            if niche == name_of(act):
                row = prices.setdefault(niche, np.full(columns.count, np.nan))
                row[columns.at(act.generation)] = act.price / 1000
        return prices
    sums = answer_sums(history, columns, name_of)
    if measure == "asked":
        return {
            name: np.where(asked > 0, asked / columns.lengths, np.nan)
            for name, (asked, _) in sums.items()
        }
    return {name: percentages(asked, right) for name, (asked, right) in sums.items()}


def _why_empty(history: History, rows: str) -> str:
    if next(whole_acts(history), None) is None:
        return NOBODY_ASKED
    if rows == "user":
        return "This world has no users: choose cells."
    return "Prices belong to users in this world: choose users."


def _by_number(name: str) -> list[tuple[int, str]]:
    """``h9`` before ``h10``."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
