"""Views of a whole population through time: answers, energy, ranks, trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from symbiont_ecology.history.flows import WORLD
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History, Trial
from symbiont_ecology.plots.drawing import (
    CHANGES_MARKED,
    MOST_COLUMNS,
    answer_sums,
    head,
    label,
    legend_below,
    mark_changes,
    new_axes,
    percentages,
    say,
    time_axis,
)
from symbiont_ecology.plots.palette import VIEW_COLOURS

NOTHING_LIVED = "No generation is over yet."
REACH = 3
"""Columns on both sides that a smoothed share is taken over."""
ENERGY_NAMES = {
    "right answers": 0,
    "dowries of the world": 2,
    "debts of the dead": 4,
    "compute": 1,
    "rent of weights": 3,
    "tickets": 5,
    "left by the dead": 10,
}
"""What moves energy between the population and the world, and the numbers of colours."""


def curves(history: History, ax: Axes | Figure | None = None, changes: Iterable[int] = ()) -> Axes:
    """Right answers in percent, smoothed, and how many are alive; births and deaths are marked.

    Dotted lines stand at the generations ``changes``, in which the world changed.
    """
    ax = new_axes(ax)
    title = "Answers and population"
    if not history.generation:
        return say(ax, title, NOTHING_LIVED)
    columns = Frames.of(history.generation, MOST_COLUMNS)
    ends = columns.edges[1:] - 1
    alive = np.array([history.ends[end].population for end in ends])
    right, counts = VIEW_COLOURS[0], VIEW_COLOURS[1]
    asked = answer_sums(history, columns, lambda act: "all").get(
        "all", np.zeros((2, columns.count))
    )
    dot = "o" if columns.count == 1 else ""
    ax.plot(ends, _smooth_share(asked), color=right, lw=1.8, marker=dot, zorder=3)
    ax.set_ylim(0, 100)
    ax.set_ylabel("right answers, %")
    ax.grid(alpha=0.25)
    mark_changes(ax, moments := list(changes))
    time_axis(ax, history)
    unit = f"right answers of the {columns.width * (2 * REACH + 1)} generations around each"
    head(ax, title, unit + (CHANGES_MARKED if moments else ""))
    if history.is_alone:
        return ax
    beside = ax.twinx()
    beside.step(ends, alive, where="post", color=counts, lw=1.3)
    top = 1.15 * max(int(alive.max()), 1)
    marks = {"births": ("^", VIEW_COLOURS[2], 0.03), "deaths": ("v", VIEW_COLOURS[3], -0.03)}
    for name, (shape, colour, above) in marks.items():
        happened = {columns.at(end.generation) for end in history.ends if getattr(end, name)}
        places = sorted(happened)
        heights = alive[places] + above * top
        beside.scatter(ends[places], heights, s=11, marker=shape, color=colour, zorder=4)
    beside.set_ylim(0, top)
    beside.set_ylabel("organelles alive")
    beside.yaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [Line2D([], [], color=right, label="right"), Line2D([], [], color=counts)]
    handles[1].set_label("alive")
    handles += [
        Line2D([], [], color=colour, marker=shape, ls="", ms=4, label=name)
        for name, (shape, colour, _) in marks.items()
    ]
    legend_below(ax, handles)
    return ax


def energy(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Where energy came from (above) and where it went (below), per generation, in ATP.

    What is left of both is the black line: how much the population and those on trial gained.
    """
    ax = new_axes(ax)
    title = "Energy"
    flows = energy_flows(history)
    if not any(amounts.any() for amounts in flows.values()):
        return say(ax, title, "No energy moved yet.")
    columns = Frames.of(history.generation, MOST_COLUMNS)
    handles: list[Artist] = []
    for sign in (1, -1):
        base = np.zeros(columns.count)
        for name, number in ENERGY_NAMES.items():
            amounts = flows[name] / columns.lengths / 1000
            if not amounts.any() or (amounts.sum() > 0) != (sign > 0):
                continue
            colour = VIEW_COLOURS[number]
            ax.stairs(base + amounts, columns.edges, baseline=base, fill=True, color=colour)
            base = base + amounts
            handles.append(Patch(color=colour, label=name))
    net = np.sum(list(flows.values()), axis=0) / columns.lengths / 1000
    ax.stairs(net, columns.edges, baseline=None, color="black", lw=1.2)
    handles.append(Line2D([], [], color="black", label="gained"))
    ax.axhline(0, color="#666666", lw=0.8)
    ax.set_ylabel("ATP per generation")
    ax.grid(alpha=0.25)
    legend_below(ax, handles)
    time_axis(ax, history)
    head(ax, title, "what came in is above zero, what was spent below")
    return ax


def energy_flows(history: History) -> dict[str, np.ndarray]:
    """Between the world and all organelles, in mATP, by column of time, ``(count,)``: what comes in
    is positive. The sum of all is what the population gained."""
    columns = Frames.of(history.generation, MOST_COLUMNS)
    flows = {name: np.zeros(columns.count) for name in ENERGY_NAMES}
    for book in history.books:
        if book.generation < history.generation:
            at = columns.at(book.generation)
            flows["right answers"][at] += book.revenue
            flows["compute"][at] -= book.cost
            flows["rent of weights"][at] -= book.rent
            flows["tickets"][at] -= book.ticket
    for transfer in history.flows.transfers:
        if transfer.generation >= history.generation:
            continue
        at = columns.at(transfer.generation)
        if transfer.source == WORLD:
            flows["dowries of the world"][at] += transfer.amount
        elif transfer.target == WORLD:
            name = "left by the dead" if transfer.amount > 0 else "debts of the dead"
            flows[name][at] -= transfer.amount
    return flows


def ranks(history: History, ax: Axes | Figure | None = None) -> Axes:
    """How many organelles have which rank, stacked, and the sum of all ranks."""
    ax = new_axes(ax)
    title = "Ranks"
    if not history.generation:
        return say(ax, title, NOTHING_LIVED)
    if not any(history.ranks.values()):
        return say(ax, title, "This log does not say ranks: an older version wrote it.")
    columns = Frames.of(history.generation, MOST_COLUMNS)
    table = [_ranks_at(history, int(edge) - 1) for edge in columns.edges[1:]]
    distinct = sorted({rank for row in table for rank in row})
    base, handles = np.zeros(columns.count), list[Artist]()
    for place, rank in enumerate(distinct):
        counts = np.array([row.count(rank) for row in table])
        colour = VIEW_COLOURS[place % len(VIEW_COLOURS)]
        ax.stairs(base + counts, columns.edges, baseline=base, fill=True, color=colour, alpha=0.8)
        base = base + counts
        handles.append(Patch(color=colour, alpha=0.8, label=f"rank {rank}"))
    ax.set_ylabel("organelles")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    beside = ax.twinx()
    sums = [sum(row) for row in table]
    beside.stairs(sums, columns.edges, baseline=None, color="black", lw=1.3)
    beside.set_ylim(0, 1.1 * max(*sums, 1))
    beside.set_ylabel("sum of ranks")
    handles.append(Line2D([], [], color="black", label="sum of ranks"))
    legend_below(ax, handles, columns=6)
    time_axis(ax, history)
    head(ax, title, "organelles by rank (colours), and the rank of all together (line)")
    return ax


def trials(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Probations: from when to when, how sure it was in the end that the new one is better, and
    the verdict."""
    ax = new_axes(ax)
    title = "Trials"
    if not history.trials:
        return say(ax, title, "Nobody was on trial in this run.")
    looks = {
        "admitted": ("o", VIEW_COLOURS[2]),
        "refused": ("X", VIEW_COLOURS[3]),
        "still on trial": (">", VIEW_COLOURS[1]),
    }
    is_named = len(history.trials) <= 25
    for trial in history.trials.values():
        shape, colour = looks[_verdict(trial)]
        end = history.generation if trial.ended is None else trial.ended
        ax.plot([trial.began, end], [trial.evidence] * 2, color=colour, lw=1, alpha=0.6)
        ax.plot(end, trial.evidence, shape, color=colour, ms=5, mew=0)
        if is_named:
            ax.text(end, trial.evidence, f" {label(trial.id)}", fontsize=6, va="bottom")
    ax.axhline(1, color="#666666", lw=0.8, ls=":")
    ax.set_yscale("log")
    ax.set_ylabel("evidence (1: none)")
    ax.grid(alpha=0.25)
    verdicts = {_verdict(trial) for trial in history.trials.values()}
    handles = [
        Line2D([], [], color=colour, marker=shape, ms=5, label=name)
        for name, (shape, colour) in looks.items()
        if name in verdicts
    ]
    legend_below(ax, handles)
    time_axis(ax, history)
    head(ax, title, "a line per trial; evidence that the new one is better, as a fair bet's wealth")
    return ax


def _smooth_share(sums: np.ndarray) -> np.ndarray:
    """Right in percent of what was asked in the columns around each; NaN where nothing was."""
    around = np.ones(2 * REACH + 1)
    asked, right = (np.convolve(row, around)[REACH:-REACH] for row in sums)
    return percentages(asked, right)


def _ranks_at(history: History, generation: int) -> Sequence[int]:
    """The ranks of all who are alive after a generation."""
    return [
        history.rank(taxon.id, generation)
        for taxon in history.phylogeny.taxa.values()
        if taxon.born <= generation and (taxon.died is None or taxon.died > generation)
    ]


def _verdict(trial: Trial) -> str:
    if trial.ended is None:
        return "still on trial"
    return "admitted" if trial.verdict == "admit" else "refused"
