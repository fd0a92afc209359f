"""What all views share: axes, columns of time, legends, and a sentence where nothing is to see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import Act, History
from symbiont_ecology.plots.palette import OTHERS_COLOUR, VIEW_COLOURS
from symbiont_ecology.transcripts import spelt
from symbiont_ecology.types import OrganelleId

WIDTH = 7.5
"""Inches, of a figure that a view makes for itself."""
MOST_COLUMNS = 120
"""Columns of time that a view has at most."""
TITLE_PAD = 18
"""Points between the axes and their title: room for what the view shows."""
LONGEST_LABEL = 24
SMALL = 8
"""Points, of labels and legends."""
CHANGES_MARKED = "; dotted: the world changes"
"""What a view with such lines says of them."""


def new_axes(ax: Axes | Figure | None, height: float = 3.4) -> Axes:
    """The axes to draw on: those given; those of an empty figure, which gets that height, in
    inches; or those of a new figure."""
    if isinstance(ax, Axes):
        return ax
    if isinstance(ax, Figure):
        figure = ax
    else:
        from matplotlib import pyplot

        figure = pyplot.figure(layout="constrained")
    figure.set_size_inches(WIDTH, height)
    return figure.add_subplot()


def say(ax: Axes, title: str, sentence: str) -> Axes:
    """A sentence in place of a view."""
    ax.set_title(title, loc="left")
    ax.set_axis_off()
    ax.text(0.5, 0.5, sentence, ha="center", va="center", transform=ax.transAxes, wrap=True)
    return ax


def head(ax: Axes, title: str, unit: str) -> None:
    """The title of a view at the left, and below it in small letters what the view shows."""
    ax.set_title(title, loc="left", pad=TITLE_PAD)
    ax.annotate(
        unit,
        (0, 1),
        xytext=(0, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=SMALL,
        color="#666666",
    )


def label(name: str) -> str:
    """A name as an axis or a legend can show it. A dollar sign begins no formula."""
    return spelt(name, LONGEST_LABEL).replace("$", r"\$")


def whole_acts(history: History) -> Iterator[Act]:
    """What was asked in generations that are whole."""
    return (act for act in history.acts if act.generation < history.generation)


def answer_sums(
    history: History, columns: Frames, key: Callable[[Act], str]
) -> dict[str, np.ndarray]:
    """By what ``key`` says of an act: rollouts and right ones in every column, ``(2, count)``. Acts
    without a key are left out."""
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, columns.count)))
    for act in whole_acts(history):
        if name := key(act):
            sums[name][:, columns.at(act.generation)] += act.asked, act.right
    return dict(sums)


def percentages(asked: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Right ones of what was asked, in percent; NaN where nothing was."""
    shares = np.full(len(asked), np.nan)
    np.divide(100 * right, asked, out=shares, where=asked > 0)
    return shares


def time_axis(ax: Axes, history: History) -> None:
    """Generations from the first to the last."""
    ax.set_xlim(0, max(history.generation, 1))
    ax.set_xlabel("generation")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def mark_changes(ax: Axes, changes: Sequence[int]) -> None:
    """A dotted line at every generation in which the world changed."""
    for change in changes:
        ax.axvline(change, color="black", ls=":", lw=1)


def row_axis(ax: Axes, names: Sequence[str]) -> None:
    """A row for every name, the first on top. Of very many rows some are named."""
    every = -(-len(names) // 60)
    rows = range(0, len(names), every)
    ax.set_yticks(list(rows), [label(names[row]) for row in rows], fontsize=SMALL - (every > 1))
    ax.set_ylim(len(names) - 0.5, -0.5)


def row_height(rows: int, least: float = 2.4, most: float = 10.0) -> float:
    """Inches of a figure with so many rows."""
    return float(np.clip(1.1 + 0.15 * rows, least, most))


def name_colours(ax: Axes, shown: Sequence[str], colours: dict[str, str], others: str = "") -> None:
    """A legend at the right: organelles with a colour of their own among those shown, and the
    others."""
    names = set(shown)
    handles = [Patch(color=colour, label=name) for name, colour in colours.items() if name in names]
    if others and names - colours.keys():
        handles.append(Patch(color=OTHERS_COLOUR, label=others))
    if handles:
        legend_beside(ax, handles)


def legend_beside(ax: Axes, handles: Sequence[Artist]) -> None:
    """A legend right of the axes."""
    ax.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        fontsize=SMALL,
        frameon=False,
        handlelength=1.2,
    )


def legend_below(ax: Axes, handles: Sequence[Artist], columns: int = 4) -> None:
    """A legend below the label of the time axis."""
    ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=4.6,
        fontsize=SMALL,
        frameon=False,
        ncols=columns,
    )


def colours_of(history: History) -> dict[OrganelleId, str]:
    """A colour for each of those that answered most; all others are grey."""
    return dict(zip(history.busiest(), VIEW_COLOURS, strict=False))
