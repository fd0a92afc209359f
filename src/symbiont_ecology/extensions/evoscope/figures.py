"""Three figures of a run for papers. Each takes a run, its folder or its ``History``, and axes to
draw on; without axes it makes a figure of its own. It returns the axes.

    from symbiont_ecology.extensions.evoscope import figures

    figures.curves(run)            # right answers; organelles alive, births and deaths
    figures.lineages(run)          # a bar for every life, lines from parents
    figures.servers(run)           # a row for every user, a colour for its organelle
    figures.save(run, "figures")   # all of them that suit the run as PNG and SVG

Dotted lines are changes of the world. Equal runs give equal files. The page of Evoscope saves every
other view as PNG or SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import written_whole
from symbiont_ecology.base.transcripts import plain
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.extensions.evoscope.history import Frames, History, Taxon
from symbiont_ecology.extensions.evoscope.methods import lesser_lives
from symbiont_ecology.extensions.evoscope.palette import OTHERS_COLOUR, VIEW_COLOURS
from symbiont_ecology.run.run import Run

FORMS = {"png": {"Software": None}, "svg": {"Date": None}}
"""Forms of a figure, and what is left out of its file: dates and versions."""
DOTS_PER_INCH, WIDTH, SMALL = 200, 7.5, 8
"""Of a figure: resolution, width in inches, and points of labels and legends."""
MAX_COLUMNS, MAX_LIVES, MAX_NAMED_ROWS, MAX_LABEL = 120, 90, 60, 24
"""Columns of time, lives and named rows of a figure, and characters of a label."""
SMOOTHED = 3
"""Columns on both sides that a share of right answers is taken over."""
RIGHT, ALIVE, BORN, DIED = VIEW_COLOURS[:4]
JOINS: dict[bool, dict[str, Any]] = {
    False: {"color": "#5f666b", "ls": "-", "lw": 0.7, "label": "child of one parent"},
    True: {"color": "#5f666b", "ls": "--", "lw": 1.2, "label": "merged of several"},
}
"""Lines from one parent, and from several."""
Source = Run | History | str | Path


def curves(run: Source, ax: Axes | Figure | None = None) -> Axes:
    """Draw right answers in percent (accepted ones where users ask), smoothed, and the number of
    organelles alive; births and deaths are marked."""
    history, ax = _history(run), _axes(ax, 3.4)
    columns = Frames.of(history.generation, MAX_COLUMNS)
    ends, shares = np.array(columns.ends), _smooth_shares(history, columns)
    ax.plot(ends, shares, "o-"[columns.count > 1 :], color=RIGHT, lw=1.8, zorder=3)
    word = "accepted" if any(act.user for act in history.whole_acts) else "right"
    ax.set(ylim=(0, 100), ylabel=f"{word} answers, %")
    ax.grid(alpha=0.25)
    _mark_changes(ax, history)
    about = f"{word} answers of the {columns.width * (2 * SMOOTHED + 1)} generations around each"
    _finish(ax, history, f"Answers and population: {about}")
    if history.is_alone:
        return ax
    alive = np.array([history.ends[end].population for end in ends])
    beside, top = ax.twinx(), 1.15 * max(int(alive.max()), 1)
    beside.step(ends, alive, where="post", color=ALIVE, lw=1.3)
    beside.set(ylim=(0, top), ylabel="organelles alive")
    beside.yaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [Line2D([], [], color=RIGHT, label=word)]
    handles += [Line2D([], [], color=ALIVE, label="alive")]
    for name, mark, colour, above in (("births", "^", BORN, 0.03), ("deaths", "v", DIED, -0.03)):
        places = sorted({columns.at(e.generation) for e in history.ends if getattr(e, name)})
        heights = alive[places] + above * top
        beside.scatter(ends[places], heights, s=11, marker=mark, color=colour, zorder=4)
        handles += [Line2D([], [], color=colour, marker=mark, ls="", ms=4, label=name)]
    _legend(ax, handles)
    return ax


def _smooth_shares(history: History, columns: Frames) -> np.ndarray:
    """Return right answers in percent of those in the columns around each; NaN where none was."""
    acts = history.whole_acts
    at = [columns.at(act.generation) for act in acts]
    around = np.ones(2 * SMOOTHED + 1)
    asked, right = (
        np.convolve(np.bincount(at, [getattr(act, name) for act in acts], columns.count), around)
        for name in ("asked", "right")
    )
    with np.errstate(invalid="ignore"):
        shares: np.ndarray = (100 * right / asked)[SMOOTHED:-SMOOTHED]
    return shares


def lineages(run: Source, ax: Axes | Figure | None = None) -> Axes:
    """Draw a bar for every life, from birth to death. Lines come from the parents, and a merge has
    several, dashed.

    Of very many lives it shows those that answered most, and their ancestors. Where everybody sits
    exams, rows name operators, and the dead without children are left out of many.
    """
    history = _history(run)
    lives, colours = list(_pedigree(history)), _colours(history)
    ax = _axes(ax, _row_height(len(lives)))
    rows = {life.id: row for row, life in enumerate(lives)}
    for row, life in enumerate(lives):
        until = history.generation if life.died is None else life.died
        bar, colour = (life.born, max(until - life.born, 0.3)), colours.get(life.id, OTHERS_COLOUR)
        ax.broken_barh([bar], (row - 0.36, 0.72), color=colour)
        for parent in life.ancestors:
            if parent in rows:
                ax.plot([life.born] * 2, [rows[parent], row], **JOINS[len(life.ancestors) > 1])
    _name_rows(ax, [f"{one.id} {one.operator}" if history.has_exams else one.id for one in lives])
    _legend(ax, list({line.get_label(): line for line in ax.lines}.values()))
    is_all = len(lives) == len(history.taxa)
    shown = "a bar for every life" if is_all else f"{len(lives)} of {len(history.taxa)} lives"
    _finish(ax, history, f"Lineages: {shown}; colours: those that answered most")
    return ax


def _pedigree(history: History) -> Iterator[Taxon]:
    """Yield the lives that are shown, children below their first parent."""
    taxa, shown = history.taxa, _shown_lives(history)
    children: dict[OrganelleId, list[Taxon]] = {}
    for taxon in taxa.values():
        first = taxon.ancestors[0] if taxon.ancestors else ""
        children.setdefault(first if first in taxa else "", []).append(taxon)
    waiting = children.get("", [])[::-1]
    while waiting:
        taxon = waiting.pop()
        if taxon.id in shown:
            yield taxon
        waiting += reversed(children.get(taxon.id, ()))


def _shown_lives(history: History) -> set[OrganelleId]:
    """Return everyone, or the busiest, each with all its first parents."""
    taxa = history.taxa
    great = taxa.keys() - lesser_lives(history)
    if len(great) <= MAX_LIVES:
        return great
    shown = set[OrganelleId]()
    for name in history.busiest():
        line, taxon = list[OrganelleId](), taxa[name] if name in great else None
        while taxon is not None and taxon.id not in shown:
            line.append(taxon.id)
            taxon = taxa.get(taxon.ancestors[0]) if taxon.ancestors else None
        shown.update(line[: MAX_LIVES - len(shown)])  # the oldest are left out
    return shown


def servers(run: Source, ax: Axes | Figure | None = None) -> Axes:
    """Draw a row for every user, in the colours of the organelles that served it."""
    history = _history(run)
    bars, colours = list(serving_bars(history)), _colours(history)
    last = {user: server for user, server, *_ in sorted(bars, key=lambda bar: bar[2])}
    users = sorted(last, key=lambda user: (last[user], user))
    ax, named = _axes(ax, _row_height(len(users))), dict[str, str]()
    for user, server, begin, end in bars:
        name = server if server in colours else "others"
        named[name] = colours.get(server, OTHERS_COLOUR)
        row = users.index(user)
        ax.broken_barh([(begin, end - begin)], (row - 0.42, 0.84), color=named[name])
    _mark_changes(ax, history)
    _name_rows(ax, users)
    _legend(ax, [Patch(color=colour, label=name) for name, colour in named.items()])
    _finish(ax, history, "Who serves whom: a row for every user, a colour for its organelle")
    return ax


def serving_bars(history: History) -> Iterator[tuple[str, OrganelleId, int, int]]:
    """Yield user, organelle, first generation and the one in which another organelle took over."""
    latest = dict[str, tuple[OrganelleId, int]]()
    for change in history.servings:
        if change.generation < history.generation:
            if change.user in latest:
                yield (change.user, *latest.pop(change.user), change.generation)
            if change.id:
                latest[change.user] = change.id, change.generation
    for user, (server, begin) in latest.items():
        yield user, server, begin, history.generation


def save(run: Source, folder: str | Path) -> list[str]:
    """Draw the figures that suit a run into a folder, and return the names of the files. A file
    that is there is replaced as a whole, so they can be drawn again while the run goes on.

    Raises:
        RunError: no generation of the run is over, or a file cannot be written.
    """
    history, names = _history(run), list[str]()
    drawings: dict[str, Callable[[Source, Figure], Axes]] = {"curves": curves}
    drawings |= {} if history.is_alone else {"lineages": lineages}
    drawings |= {"servers": servers} if history.servings else {}
    with mpl.rc_context():
        mpl.rcdefaults()  # the same figures, whatever the caller's own style
        mpl.rcParams["svg.hashsalt"] = "symbiont"
        for name, draw in drawings.items():
            figure = Figure(layout="constrained")
            draw(history, figure)
            for form in FORMS:
                names.append(f"{name}.{form}")
                _save(figure, Path(folder) / names[-1])
    return names


def _save(figure: Figure, path: Path) -> None:
    form = path.suffix[1:]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as place:
            figure.savefig(place, format=form, dpi=DOTS_PER_INCH, metadata=dict(FORMS[form]))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def _history(run: Source) -> History:
    """Return the history of a run.

    Raises:
        RunError: no generation of it is over.
    """
    if isinstance(run, History):
        history = run
    else:
        history = History.of_run(run.folder if isinstance(run, Run) else run)
    if not history.generation:
        raise RunError(f"{history.folder}: no generation is over yet, so there is nothing to draw")
    return history


def _colours(history: History) -> dict[OrganelleId, str]:
    """Return a colour for each of those that answered most; all others are grey."""
    return dict(zip(history.busiest(), VIEW_COLOURS, strict=False))


def _axes(ax: Axes | Figure | None, height: float) -> Axes:
    """Return the axes to draw on: those given, or those of a figure, which gets a height in
    inches."""
    if isinstance(ax, Axes):
        return ax
    figure = ax
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure(layout="constrained")
    figure.set_size_inches(WIDTH, height)
    return figure.add_subplot()


def _row_height(rows: int) -> float:
    """Return inches of a figure with so many rows."""
    return float(np.clip(1.4 + 0.15 * rows, 2.4, 10.0))


def _mark_changes(ax: Axes, history: History) -> None:
    for generation in {news.generation for news in history.world_news()}:
        ax.axvline(generation, color="black", ls=":", lw=1)


def _finish(ax: Axes, history: History, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=SMALL + 1)
    ax.set_xlim(0, max(history.generation, 1))
    ax.set_xlabel("generation")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend(ax: Axes, handles: Sequence[Artist]) -> None:
    """Add a legend below the label of the axis of time."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 4.6}
    ax.legend(handles=handles, **place, fontsize=SMALL, frameon=False, ncols=6)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Label a row for every name, the first on top. Of very many rows some are named."""
    every = -(-len(names) // MAX_NAMED_ROWS)
    rows = range(0, len(names), every)
    # A dollar sign begins no formula.
    labels = [plain(names[row], MAX_LABEL).replace("$", r"\$") for row in rows]
    ax.set_yticks(list(rows), labels, fontsize=SMALL - (every > 1))
    ax.set_ylim(len(names) - 0.5, -0.5)
