"""Figures of worlds with habitats: how much is accepted, and who serves whom, through time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from symbiont_ecology.analysis.figures import COLOURS, MAIN
from symbiont_ecology.analysis.streams import Stream
from symbiont_ecology.analysis.worlds import WorldResults

CURVE_POINTS, DEMO_POINTS = 40, 26
"""Points of a curve: of several seeds, of one."""
LABEL_GAP = 6.5
"""Least distance of two labels, in points of a percentage."""
PALETTE = (
    "#17805c", "#e0a030", "#1b6ca8", "#b5502b", "#7a4fa3", "#8fbf3f",
    "#d46a9c", "#5aa9d6", "#8b6b3d", "#3b3f8f", "#c9c04a", "#4aa89a",
)  # fmt: skip
"""One colour for each of the busiest organelles; all others are grey."""
_NOBODY, _OTHERS = (1.0, 1.0, 1.0), (0.75, 0.75, 0.75)
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
    rest, height = [arm for arm in runs if arm != main], -100.0
    for arm, run in sorted(runs.items(), key=lambda entry: _curve(entry[1], DEMO_POINTS)[1][-1]):
        dash, colour, width = _pen(arm, main, rest)
        xs, ys = _curve(run, DEMO_POINTS)
        above.plot(xs, 100 * ys, dash, color=colour, lw=width)
        height = max(100 * ys[-1], height + LABEL_GAP)
        above.annotate(
            arm, (1, height), (6, 0), xycoords=above.get_yaxis_transform(),
            textcoords="offset points", color=colour, va="center", fontsize=9,
        )  # fmt: skip
    above.set(ylabel="accepted answers, %", ylim=(0, 100))
    above.grid(alpha=0.3)
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


def save(figure: Figure, path: Path) -> None:
    """Writes a figure without date and version, so that equal numbers give equal files."""
    figure.savefig(path, dpi=110, metadata={"Software": None})


def draw_servers(run: Stream, axis: Axes) -> None:
    """Who serves whom through time: a row per habitat, by kind, and a colour per organelle."""
    servers, kinds = run.servers, run.kinds[:, -1]
    order = np.lexsort((run.asked.world.arrivals, kinds))
    organelles = [organelle for organelle in np.unique(servers) if organelle >= 0]
    busiest = sorted(organelles, key=lambda organelle: -int((servers == organelle).sum()))
    colours = np.full((*servers.shape, 3), _NOBODY)
    for place, organelle in enumerate(busiest):
        colours[servers == organelle] = _rgb(PALETTE[place]) if place < len(PALETTE) else _OTHERS
    axis.imshow(colours[order], aspect="auto", interpolation="nearest")
    for edge in np.flatnonzero(np.diff(kinds[order])) + 0.5:
        axis.axhline(edge, color="black", lw=0.8)
    axis.set(xlabel="generation", ylabel="users")
    axis.set_yticks([])


def _curves(runs: Mapping[str, Sequence[Stream]], main: str, rest: Sequence[str]) -> Figure:
    """Acceptance through time, means over seeds, and the number of adapters."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for arm, streams in runs.items():
        dash, colour, width = _pen(arm, main, rest)
        xs, shares = zip(*(_curve(run) for run in streams), strict=True)
        left.plot(xs[0], 100 * np.mean(shares, axis=0), dash, color=colour, lw=width, label=arm)
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
    figure.legend(*left.get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _servers(run: Stream) -> Figure:
    """Who serves whom in one run."""
    rows = len(run.asked.world.names)
    figure = Figure(figsize=(9.6, 1.5 + min(rows, 120) / 36), layout="constrained")
    axis = figure.subplots()
    draw_servers(run, axis)
    axis.set_title(
        f"who answers whom, seed {run.outcome.seed}: a row per user, by what they want at the end; "
        f"a colour for each of the {len(PALETTE)} busiest organelles",
        fontsize=9,
    )
    return figure


def _pen(arm: str, main: str, rest: Sequence[str]) -> tuple[str, str, float]:
    """Dash, colour and width of an arm's line."""
    if arm == main:
        return "-", MAIN, 2.6
    place = rest.index(arm)
    return "-" if place < len(COLOURS) else "--", COLOURS[place % len(COLOURS)], 1.3


def _curve(run: Stream, points: int = CURVE_POINTS) -> tuple[np.ndarray, np.ndarray]:
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


def _rgb(code: str) -> tuple[float, float, float]:
    red, green, blue = (int(code[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue
