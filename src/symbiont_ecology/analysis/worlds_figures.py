"""Figures of worlds with habitats: how much is accepted, and who serves whom, through time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from scipy import optimize, stats

from symbiont_ecology.analysis.figures import save
from symbiont_ecology.analysis.streams import Stream
from symbiont_ecology.analysis.worlds import WorldResults
from symbiont_ecology.palette import ARM_COLOURS, MAIN_COLOUR, OTHERS_COLOUR, VIEW_COLOURS

CURVE_POINTS, LEAST_ANSWERS = 40, 400
"""Points of a curve at most, and answers of all seeds to a point at least."""
DEMO_POINTS = 26
LABEL_GAP = 6.5
"""Least distance of two labels, in points of a percentage."""
_NOBODY = "#ffffff"
TICKS = (1, 2, 3, 4, 6, 8, 12, 24, 50, 100, 200, 500, 1000)


def draw_worlds(results: WorldResults, folder: Path) -> list[str]:
    """Draws every figure of a suite; returns the names of the files. A world in which the main arm
    has not lived yet has none."""
    names = []
    for world, arms in results.measures.items():
        if results.protocol.main not in arms:
            continue
        runs = {arm: list(results.runs[world, arm].values()) for arm in arms}
        rest = [arm for arm in results.protocol.arms if arm != results.protocol.main]
        figures = {
            f"{world}.png": _curves(runs, results.protocol.main, rest),
            f"{world}-servers.png": _servers(runs[results.protocol.main][0]),
        }
        for name, figure in figures.items():
            save(figure, folder / name)
            names.append(name)
    return names


def draw_demo(runs: Mapping[str, Stream], main: str, path: Path) -> None:
    """One picture of one seed: acceptance of all arms above, who serves whom in the main arm
    below."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1, 1.1), sharex=True)
    rest = [arm for arm in runs if arm != main]
    for arm, run in runs.items():
        dash, colour, width = _pen(arm, main, rest)
        xs, ys = _curve(run, DEMO_POINTS)
        above.plot(xs, 100 * ys, dash, color=colour, lw=width, label=arm)
    above.set(ylabel="accepted answers, %", ylim=(0, 100))
    above.grid(alpha=0.3)
    _name_ends(above)
    draw_servers(runs[main], below)
    below.set_ylabel("users, by what they want at the end")
    _mark_life(runs[main], below)
    if (moment := runs[main].asked.world.config.drift_at) is not None:
        for axis in (above, below):
            axis.axvline(moment, color="black", ls=":", lw=1)
        above.annotate(
            "some users change their mind", (moment, 4), (4, 0), textcoords="offset points",
            fontsize=9,
        )  # fmt: skip
    below.set_title(
        "who answers whom: a row per user, a colour per adapter; ▲ an adapter is born, ✕ one dies",
        fontsize=9,
        loc="left",
        pad=20,
    )
    save(figure, path)


def draw_servers(run: Stream, axis: Axes) -> None:
    """Who serves whom through time: a row per habitat, by kind, and a colour per organelle."""
    servers, kinds = run.servers, run.kinds[:, -1]
    order = np.lexsort((run.asked.world.arrivals, kinds))
    organelles = [organelle for organelle in np.unique(servers) if organelle >= 0]
    busiest = sorted(organelles, key=lambda organelle: -int((servers == organelle).sum()))
    colours = np.full((*servers.shape, 3), to_rgb(_NOBODY))
    for place, organelle in enumerate(busiest):
        code = VIEW_COLOURS[place] if place < len(VIEW_COLOURS) else OTHERS_COLOUR
        colours[servers == organelle] = to_rgb(code)
    axis.imshow(colours[order], aspect="auto", interpolation="nearest")
    for edge in np.flatnonzero(np.diff(kinds[order])) + 0.5:
        axis.axhline(edge, color="black", lw=0.8)
    axis.set(xlabel="generation", ylabel="users")
    axis.set_yticks([])


def _curves(runs: Mapping[str, Sequence[Stream]], main: str, rest: Sequence[str]) -> Figure:
    """Acceptance through time, means over seeds, with the interval of the main arm, and the number
    of adapters."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    for arm, streams in sorted(runs.items(), key=lambda entry: entry[0] == main):  # it is on top
        dash, colour, width = _pen(arm, main, rest)
        answers = sum(len(run.accepted) for run in streams)
        points = min(CURVE_POINTS, max(answers // LEAST_ANSWERS, 2))
        xs, shares = zip(*(_curve(run, points) for run in streams), strict=True)
        mean = 100 * np.mean(shares, axis=0)
        left.plot(xs[0], mean, dash, color=colour, lw=width, label=arm)
        if arm == main and len(streams) > 1:
            half = stats.t.ppf(0.975, len(streams) - 1) * stats.sem(100 * np.array(shares))
            left.fill_between(xs[0], mean - half, mean + half, color=colour, alpha=0.15, lw=0)
        living = np.mean([run.outcome.population for run in streams], axis=0)
        right.plot(living, dash, color=colour, lw=width)
    left.set(xlabel="generation", ylabel="accepted, %", ylim=(0, 100))
    right.set(xlabel="generation", ylabel="adapters", yscale="log")
    low, high = right.get_ylim()
    right.set_yticks([tick for tick in TICKS if low <= tick <= high])
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.yaxis.set_minor_formatter(NullFormatter())
    for axis in (left, right):
        axis.grid(alpha=0.3)
    _name_ends(left)
    return figure


def _name_ends(axis: Axes) -> None:
    """Writes the name of each line beside its end, in its colour."""
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in axis.lines]
    order = np.argsort(ends)
    steps = LABEL_GAP * np.arange(len(order))
    # As near to their ends as their distance allows, and from 0 to 100.
    lowest = optimize.isotonic_regression(np.array(ends)[order] - steps).x
    heights = lowest.clip(0, 100 - steps[-1]) + steps
    for place, height in zip(order, heights, strict=True):
        line = axis.lines[place]
        dash = "" if line.get_linestyle() == "-" else f" ({line.get_linestyle()})"
        axis.annotate(
            f"{line.get_label()}{dash}", (1, height), (6, 0), xycoords=axis.get_yaxis_transform(),
            textcoords="offset points", color=line.get_color(), va="center", fontsize=8,
        )  # fmt: skip


def _servers(run: Stream) -> Figure:
    """Who serves whom in one run."""
    rows = len(run.asked.world.names)
    figure = Figure(figsize=(9.6, 1.5 + min(rows, 120) / 36), layout="constrained")
    axis = figure.subplots()
    draw_servers(run, axis)
    axis.set_title(
        f"who answers whom, seed {run.outcome.seed}: a row per user, by what they want at the end; "
        f"a colour for each of the {len(VIEW_COLOURS)} busiest organelles",
        fontsize=9,
    )
    return figure


def _pen(arm: str, main: str, rest: Sequence[str]) -> tuple[str, str, float]:
    """Dash, colour and width of an arm's line."""
    if arm == main:
        return "-", MAIN_COLOUR, 2.6
    rounds, place = divmod(rest.index(arm), len(ARM_COLOURS))
    return ("-", "--", ":")[rounds % 3], ARM_COLOURS[place], 1.3


def _curve(run: Stream, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle of each part of a run, in generations, and the share that was accepted in it."""
    edges = np.linspace(0, run.asked.length, min(points, run.asked.length) + 1)
    counts, _ = np.histogram(run.asked.generations, edges)
    accepted, _ = np.histogram(run.asked.generations, edges, weights=run.accepted)
    return (edges[1:] + edges[:-1]) / 2, accepted / np.maximum(counts, 1)


def _mark_life(run: Stream, axis: Axes) -> None:
    """Births and deaths, along the upper edge."""
    moments = {"^": [moment for moment, _ in run.outcome.births], "x": run.outcome.deaths}
    for place, (marker, generations) in enumerate(moments.items()):
        ys = np.full(len(generations), 1.025 + 0.035 * place)
        axis.plot(
            generations, ys, marker, color="black", ms=4, mew=1, clip_on=False,
            transform=axis.get_xaxis_transform(),
        )  # fmt: skip
