"""Views of evolution strategies through time: rewards of the members, what guards against cheap
rewards, the centre beside the bare host, and the size of steps; and how long phases take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from symbiont_ecology.history.ascents import ascents_of, looks_of
from symbiont_ecology.history.frames import Frames
from symbiont_ecology.history.history import History
from symbiont_ecology.history.timings import Timing
from symbiont_ecology.plots.drawing import (
    MOST_COLUMNS,
    head,
    legend_below,
    new_axes,
    say,
    time_axis,
)
from symbiont_ecology.plots.palette import VIEW_COLOURS

NO_STEPS = "This run has no steps of evolution strategies."
BAND_NAME = "20th to 80th percentile"


def reward_band(history: History, ax: Axes | Figure | None = None) -> Axes:
    """What the members of each generation earned: mean, best (dashed), and a band."""
    ax, title = new_axes(ax), "Rewards of the members"
    if not (steps := ascents_of(history)):
        return say(ax, title, NO_STEPS)
    rows = [(point.generation, point.mean, point.low, point.high, point.best) for point in steps]
    draw_band(ax, rows, "reward")
    time_axis(ax, history)
    head(ax, title, "the mean reward of each member, over the population")
    return ax


def draw_band(ax: Axes, rows: Sequence[tuple[float, ...]], name: str) -> None:
    """Rows of generation, mean, low, high and best as two lines and a band."""
    times, mean, low, high, best = np.array(rows).T
    dot = "o" if len(rows) == 1 else ""
    ax.fill_between(times, low, high, color=VIEW_COLOURS[0], alpha=0.25, lw=0)
    ax.plot(times, mean, color=VIEW_COLOURS[0], lw=1.8, marker=dot, label="mean")
    ax.plot(times, best, color=VIEW_COLOURS[3], lw=1.4, ls="--", marker=dot, label="best")
    ax.set_ylabel(name)
    ax.grid(alpha=0.25)
    legend_below(ax, [*ax.lines, Patch(color=VIEW_COLOURS[0], alpha=0.25, label=BAND_NAME)])


def answer_lengths(history: History, ax: Axes | Figure | None = None) -> Axes:
    """How long the members' answers are, and how many have no text."""
    ax, title = new_axes(ax), "Length of answers, and empty ones"
    steps = ascents_of(history)
    if not steps:
        return say(ax, title, NO_STEPS)
    times = [ascent.generation for ascent in steps]
    lengths = _Line([ascent.tokens for ascent in steps], "mean length", "tokens")
    empty = _Line([100 * ascent.empty for ascent in steps], "without text", "without text, %", 100)
    _pair(ax, times, lengths, empty)
    time_axis(ax, history)
    head(ax, title, "of all members; a reward can be cheated by either")
    return ax


def centre_steps(history: History, ax: Axes | Figure | None = None) -> Axes:
    """How far the centre goes, and how much noise the members have."""
    ax, title = new_axes(ax), "Step and noise"
    steps = ascents_of(history)
    if not steps:
        return say(ax, title, NO_STEPS)
    times = [ascent.generation for ascent in steps]
    sizes = _Line([ascent.step for ascent in steps], "step", "step ÷ noise")
    noise = _Line([100 * ascent.noise for ascent in steps], "noise", "noise on ΔW, % of ‖W‖")
    _pair(ax, times, sizes, noise)
    time_axis(ax, history)
    head(ax, title, "the step per number, in units of the noise; and the noise itself")
    return ax


def centre_looks(history: History, ax: Axes | Figure | None = None) -> Axes:
    """Right answers of the centre itself and of the bare host, to the same questions each time."""
    ax, title = new_axes(ax), "The centre and the bare host"
    looks = looks_of(history)
    if not looks:
        return say(ax, title, "Nobody looked at the centre itself: strategy.looks is 0.")
    times = [look.generation for look in looks]
    ax.plot(times, [100 * x.centre for x in looks], "-o", color=VIEW_COLOURS[0], label="centre")
    ax.plot(times, [100 * x.host for x in looks], "--d", color=VIEW_COLOURS[1], ms=4)
    ax.lines[1].set_label("bare host")
    ax.set_ylim(0, 100)
    ax.set_ylabel("right answers, %")
    ax.grid(alpha=0.25)
    legend_below(ax, ax.lines)
    time_axis(ax, history)
    head(ax, title, f"the same {looks[-1].questions} questions at every look")
    return ax


def phase_times(timings: Sequence[Timing], ax: Axes | Figure | None = None) -> Axes:
    """Seconds of a generation by phase, stacked; means of several generations where a run is
    long."""
    ax, title = new_axes(ax), "Time by phase"
    timed = [timing for timing in timings if timing.phases]
    if not timed:
        return say(ax, title, "This run wrote down no times of phases.")
    first = timed[0].generation
    columns = Frames.of(timed[-1].generation + 1 - first, MOST_COLUMNS)
    names = list(dict.fromkeys(name for timing in timed for name in timing.phases))
    sums = {name: np.zeros(columns.count) for name in names}
    counts = np.zeros(columns.count)
    for timing in timed:
        counts[columns.at(timing.generation - first)] += 1
        for name, seconds in timing.phases.items():
            sums[name][columns.at(timing.generation - first)] += seconds
    total = sum(float(row.sum()) for row in sums.values())
    base, handles = np.zeros(columns.count), []
    for number, (name, row) in enumerate(sums.items()):
        top = base + row / np.maximum(counts, 1)
        colour = VIEW_COLOURS[number % len(VIEW_COLOURS)]
        ax.stairs(top, first + columns.edges, baseline=base, fill=True, color=colour)
        share = row.sum() / total if total else 0
        handles.append(Patch(color=colour, label=f"{name} {share:.0%}"))
        base = top
    ax.set_xlim(first, first + columns.generations)
    ax.set_xlabel("generation")
    ax.set_ylabel("seconds per generation")
    ax.grid(alpha=0.25)
    legend_below(ax, handles)
    head(ax, title, "wall-clock seconds; percentages are shares of all of them")
    return ax


@dataclass(frozen=True)
class _Line:
    """A line with an axis of its own, which ends at ``most`` if that is said."""

    values: Sequence[float]
    name: str
    axis: str
    most: float | None = None


def _pair(ax: Axes, times: Sequence[int], left: _Line, right: _Line) -> None:
    """Two lines, the second dashed, with its axis at the right."""
    handles, dot = [], "o" if len(times) == 1 else ""
    for number, line in enumerate((left, right)):
        axes, colour, dash = ax.twinx() if number else ax, VIEW_COLOURS[number], ("-", "--")[number]
        handles += axes.plot(times, line.values, dash, color=colour, marker=dot, label=line.name)
        axes.set_ylim(0, line.most or 1.1 * max(*line.values, 1e-9))
        axes.set_ylabel(line.axis)
    ax.grid(alpha=0.25)
    legend_below(ax, handles)
