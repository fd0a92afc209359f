"""Descent: a bar for every life, and shares of answers in which children grow out of parents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History
from symbiont_ecology.history.phylogeny import Taxon
from symbiont_ecology.history.variants import lesser_lives
from symbiont_ecology.plots.drawing import (
    MOST_COLUMNS,
    answer_sums,
    colours_of,
    head,
    legend_below,
    name_colours,
    new_axes,
    row_axis,
    row_height,
    say,
    time_axis,
)
from symbiont_ecology.plots.palette import OTHERS_COLOUR
from symbiont_ecology.plots.variants import score_colours
from symbiont_ecology.types import OrganelleId

MOST_LIVES = 90
"""Lives that a figure of lineages has at most."""
MOST_AREAS = 40
"""Organelles with an area of their own in a Muller plot."""
JOIN = "#5f666b"


def lineages(history: History, ax: Axes | Figure | None = None) -> Axes:
    """A bar for every life, from birth to death. Lines come from the parents, and a merge has
    several, dashed.

    Of very many lives it shows those that answered most, and their ancestors. Where everybody sits
    exams, colours are scores, rows name operators, and the dead without children are left out of
    many.
    """
    taxa, title = history.phylogeny.taxa, "Lineages"
    if not taxa:
        return say(new_axes(ax), title, "Nobody was born in this run.")
    lives = list(_in_order(history))
    ax = new_axes(ax, row_height(len(lives)))
    rows = {life.id: row for row, life in enumerate(lives)}
    if history.has_exams:
        colours, scale = score_colours(history)
        ax.figure.colorbar(scale, ax=ax, pad=0.02).set_label("score")
    else:
        colours = colours_of(history)
    end = max(history.generation, 1)
    for life in lives:
        until = end if life.died is None else life.died
        row, colour = rows[life.id], colours.get(life.id, OTHERS_COLOUR)
        ax.broken_barh([(life.born, max(until - life.born, 0.3))], (row - 0.36, 0.72), color=colour)
        is_merge = len(life.ancestors) > 1
        for parent in life.ancestors:
            if parent in rows:
                heights, dash = (rows[parent], row), "--" if is_merge else "-"
                ax.plot([life.born] * 2, heights, dash, color=JOIN, lw=1.2 if is_merge else 0.7)
    row_axis(ax, [f"{life.id} {life.operator}" if history.has_exams else life.id for life in lives])
    time_axis(ax, history)
    dashes = {"child of one parent": "-", "merged of several": "--"}
    kinds = {len(life.ancestors) > 1 for life in lives if life.ancestors}
    handles = [
        Line2D([], [], color=JOIN, ls=dash, lw=1, label=name)
        for (name, dash), is_merge in zip(dashes.items(), (False, True), strict=True)
        if is_merge in kinds
    ]
    if handles:
        legend_below(ax, handles)
    is_all = len(lives) == len(taxa)
    shown = "a bar for every life" if is_all else f"{len(lives)} of {len(taxa)} lives"
    meaning = "scores" if history.has_exams else "those that answered most"
    head(ax, title, f"{shown}, from birth to death; colours: {meaning}")
    return ax


def muller(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Shares of all answers through time; children grow out of the middle of their parents
    (Muller 1932)."""
    ax, title = new_axes(ax), "Muller plot"
    columns = Frames.of(history.generation, MOST_COLUMNS)
    taxa = history.phylogeny.taxa
    sums = answer_sums(history, columns, lambda act: act.id if act.id in taxa else "")
    if not sums:
        return say(ax, title, "No organelle has answered anything yet.")
    counts = {name: rows[0] for name, rows in sums.items()}
    total = np.sum(list(counts.values()), axis=0)
    shares = {name: 100 * row / np.maximum(total, 1) for name, row in counts.items()}
    shown = {name for name in history.busiest()[:MOST_AREAS] if name in shares}
    others = np.sum([row for name, row in shares.items() if name not in shown], axis=0)
    colours = colours_of(history)
    middles = (columns.edges[:-1] + columns.edges[1:]) / 2
    times = np.array([0, *middles, history.generation])
    base = np.zeros(len(times))
    areas = [(name, shares[name] * part) for name, part in _nested(history, shown)]
    for name, row in [*areas, ("", others + np.zeros(columns.count))]:
        top = base + np.pad(row, 1, mode="edge")
        colour = colours.get(name, OTHERS_COLOUR)
        ax.fill_between(times, base, top, color=colour, ec="white", lw=0.3)
        base = top
    ax.set_ylim(0, 100)
    ax.set_ylabel("share of answers, %")
    time_axis(ax, history)
    name_colours(ax, list(shares), colours, "others")
    head(ax, title, "who answers; children grow out of the middle of their parents")
    return ax


def _children(taxa: Mapping[OrganelleId, Taxon]) -> dict[OrganelleId, list[Taxon]]:
    """By first parent; those without one that is known are under an empty name."""
    children: dict[OrganelleId, list[Taxon]] = defaultdict(list)
    for taxon in taxa.values():
        first = taxon.ancestors[0] if taxon.ancestors else ""
        children[first if first in taxa else ""].append(taxon)
    return children


def _in_order(history: History) -> Iterator[Taxon]:
    """Lives, children below their first parent."""
    taxa = history.phylogeny.taxa
    children, ids = _children(taxa), _kept(history)
    waiting = list(reversed(children[""]))
    while waiting:
        taxon = waiting.pop()
        if taxon.id in ids:
            yield taxon
        waiting += reversed(children[taxon.id])


def _kept(history: History) -> set[OrganelleId]:
    """Everyone, or so many of those that answered most, each with all its first parents."""
    taxa = history.phylogeny.taxa
    great = taxa.keys() - lesser_lives(history)
    if len(great) <= MOST_LIVES:
        return great
    ids = set[OrganelleId]()
    for name in (name for name in history.busiest() if name in great):
        line, taxon = list[OrganelleId](), taxa.get(name)
        while taxon is not None and taxon.id not in ids:
            line.append(taxon.id)
            taxon = taxa.get(taxon.ancestors[0]) if taxon.ancestors else None
        ids.update(line[: MOST_LIVES - len(ids)])  # the oldest are left out
    return ids


def _nested(history: History, shown: set[OrganelleId]) -> Sequence[tuple[OrganelleId, float]]:
    """Areas from the bottom up: a parent's half, its children, its other half."""
    taxa = history.phylogeny.taxa
    children = _children(taxa)
    is_shown = _with_shown(taxa, shown)
    areas = list[tuple[OrganelleId, float]]()
    waiting: list[tuple[Taxon, bool]] = [(taxon, False) for taxon in reversed(children[""])]
    while waiting:
        taxon, is_second = waiting.pop()
        has_children = any(child.id in is_shown for child in children[taxon.id])
        if taxon.id in shown:
            areas.append((taxon.id, 0.5 if has_children else 1.0))
        if has_children and not is_second:
            waiting.append((taxon, True))
            waiting += [(child, False) for child in reversed(children[taxon.id])]
    return areas


def _with_shown(taxa: Mapping[OrganelleId, Taxon], shown: set[OrganelleId]) -> set[OrganelleId]:
    """Those that are shown, and whoever has a descendant that is."""
    ids = set[OrganelleId]()
    for name in shown:
        taxon = taxa.get(name)
        while taxon is not None and taxon.id not in ids:
            ids.add(taxon.id)
            taxon = taxa.get(taxon.ancestors[0]) if taxon.ancestors else None
    return ids
