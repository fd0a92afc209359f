"""The figures of comparisons: lines with bands, and for worlds a picture of who serves whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy import stats

from symbiont_ecology.ecology import HOST
from symbiont_ecology.extensions.evoscope.palette import (
    ARM_COLOURS,
    MAIN_COLOUR,
    OTHERS_COLOUR,
    VIEW_COLOURS,
)
from symbiont_ecology.extensions.study.comparison import Summary
from symbiont_ecology.extensions.study.measures import Stream
from symbiont_ecology.extensions.study.protocol import Protocol
from symbiont_ecology.extensions.study.results import Results

MAX_POINTS, MIN_ANSWERS, DEMO_POINTS = 40, 400, 26
"""Points of a curve at most, and answers of all seeds to a point at least; points in the demo."""
WIDE, THIN = 2.6, 1.3
"""Widths of lines, in points."""
FLOPS, RIGHT = "useful training FLOPs", "right answers, %"
MOMENT: dict[str, Any] = {"color": "black", "ls": ":", "lw": 1}
"""The line at a value that is of interest."""
Curve = tuple[np.ndarray, ...]
"""Points, heights, and for a band the lowest and the highest."""


@dataclass(frozen=True)
class Pen:
    """The line of an arm: wide for the arm in question, dashed where only the routing is
    another."""

    dash: str
    colour: str
    width: float = THIN


def pens_of(protocol: Protocol) -> dict[str, Pen]:
    """Return the pen of every arm. Of more arms than colours, the further ones have dots and
    dashes."""
    rivals = [arm for arm in protocol.own_arms if arm != protocol.main]
    lines = {
        arm: Pen(("-", "-.", ":")[place // len(ARM_COLOURS) % 3], colour)
        for place, (arm, colour) in enumerate(zip(rivals, cycle(ARM_COLOURS), strict=False))
    }
    lines[protocol.main] = Pen("-", MAIN_COLOUR, WIDE)
    runs = {arm: protocol.runs_of(arm) for arm in protocol.arms}
    return {
        arm: lines[arm] if own == arm else Pen("--", lines[own].colour) for arm, own in runs.items()
    }


def lines(
    axis: Axes, curves: Mapping[str, Curve], pens: Mapping[str, Pen], marker: str = ""
) -> None:
    """Draw a line for each name; around a wide one, the band between its lowest and highest
    values."""
    for name, curve in curves.items():
        pen, (xs, ys) = pens[name], curve[:2]
        axis.plot(xs, ys, marker + pen.dash, color=pen.colour, label=name, lw=pen.width)
        axis.lines[-1].set_zorder(pen.width)
        if len(curve) > 2 and pen.width == WIDE:
            axis.fill_between(xs, curve[2], curve[3], color=pen.colour, alpha=0.15, lw=0)
    axis.grid(alpha=0.3)


def _panels(
    panels: Mapping[str, Mapping[str, Curve]],
    pens: Mapping[str, Pen],
    x: str,
    y: str,
    size: tuple[float, float] = (4.1, 3.4),
) -> tuple[Figure, list[Axes]]:
    """Lines in panels, at most three beside each other, with one legend below."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel())
    for axis in axes[len(panels) :]:
        axis.axis("off")
    for axis, (title, curves) in zip(axes, panels.items(), strict=False):
        lines(axis, curves, pens, ".")
        axis.set(title=title, xlabel=x)
    figure.supylabel(y, fontsize=10)
    # A later panel may have a line that the first one lacks.
    handles = {
        label: handle
        for axis in axes[: len(panels)]
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(handles), 5, int(figure.get_figwidth() / 2))
    figure.legend(handles.values(), handles, fontsize=8, loc="outside lower center", ncols=columns)
    return figure, axes[: len(panels)]


def save(figure: Figure, path: Path) -> None:
    """Write a figure without date and version, so that equal numbers give equal files."""
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _saved(figures: Mapping[str, Figure | None], folder: Path) -> list[str]:
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    for name, figure in drawn.items():
        save(figure, folder / name)
    return list(drawn)


# Budgets.


def draw_all(results: Results, summary: Summary, folder: Path) -> list[str]:
    """Draw every figure that the results have data for; return the names of the files."""
    pens = pens_of(results.protocol)
    figures = {"accuracy.png": _accuracy(summary, pens), "stages.png": _stages(summary)}
    return _saved(figures, folder)


def _accuracy(summary: Summary, pens: Mapping[str, Pen]) -> Figure:
    """Accuracy against training FLOPs, one panel per view; a band from the lowest to the highest
    seed."""
    unit, views = summary.protocol.unit_flops, summary.accuracy[summary.largest]
    pens = {HOST: Pen(":", "black"), **pens}
    flops = [float(budget) * unit for budget in summary.accuracy]
    panels: dict[str, dict[str, Curve]] = {view: {} for view in views}
    for view, curves in panels.items():
        for arm in pens:
            shares = [own.get(view, {}).get(arm) for own in summary.accuracy.values()]
            found = [(x, share) for x, share in zip(flops, shares, strict=True) if share]
            rows = [(x, one.estimate, min(one.seeds), max(one.seeds)) for x, one in found]
            if rows:
                xs, *heights = np.array(rows).T
                curves[arm] = xs, *(100 * height for height in heights)
    figure, axes = _panels(panels, pens, FLOPS, RIGHT)
    for axis in axes:
        axis.set(xscale="log", ylim=(0, 100))
        axis.set_xticks(flops, [f"{tick:.3g}" for tick in flops])
        axis.set_xticks([], minor=True)
    return figure


def _stages(summary: Summary) -> Figure | None:
    """A panel per arm: what is right of each family, from the end of its own stage on."""
    courses = summary.stages.get("courses", {})
    if not courses:
        return None
    panels: dict[str, dict[str, Curve]] = {
        arm: {
            family: (np.arange(number, len(shares)) + 1, 100 * np.array(shares[number:]))
            for number, (family, shares) in enumerate(course.items())
        }
        for arm, course in courses.items()
    }
    families = dict.fromkeys(family for curves in panels.values() for family in curves)
    colours = {name: VIEW_COLOURS[n % len(VIEW_COLOURS)] for n, name in enumerate(families)}
    pens = {name: Pen("-", colour) for name, colour in colours.items()}
    figure, _ = _panels(panels, pens, "families that came", RIGHT, (3.1, 2.8))
    return figure


# Worlds, and the demos.


def draw_worlds(results: Results, folder: Path) -> list[str]:
    """Draw every figure of a suite of worlds; return the names of the files. A world in which the
    main arm has not lived yet has none."""
    main, figures = results.protocol.main, dict[str, Figure | None]()
    pens = pens_of(results.protocol)
    for world in results.protocol.worlds:
        lived = {arm: list(results.streams.get((world, arm), {}).values()) for arm in pens}
        runs = {arm: own for arm, own in lived.items() if own}
        if main in runs:
            figures[f"{world}.png"] = _acceptance(runs, pens)
    return _saved(figures, folder)


def draw_demo(runs: Mapping[str, Stream], main: str, path: Path) -> None:
    """Draw one picture of one seed: acceptance of all arms above, who serves whom in the main arm
    below."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1, 1.1), sharex=True)
    others = [arm for arm in runs if arm != main]
    pens = {arm: Pen("-", colour) for arm, colour in zip(others, ARM_COLOURS, strict=False)}
    pens[main] = Pen("-", MAIN_COLOUR, WIDE)
    curves = {arm: _course([run], DEMO_POINTS) for arm, run in runs.items()}
    lines(above, curves, pens)
    above.set(ylabel="accepted answers, %", ylim=(0, 100))
    above.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    _draw_servers(runs[main], below)
    below.set_ylabel("users, by what they want at the end")
    if (moment := runs[main].asked.world.config.drift_at) is not None:
        for axis in (above, below):
            axis.axvline(moment, **MOMENT)
        words = "some users change their mind"
        above.annotate(words, (moment, 4), (4, 0), textcoords="offset points", fontsize=9)
    title = "who answers whom: a row per user, a colour per adapter"
    below.set_title(title, fontsize=9, loc="left")
    save(figure, path)


def _acceptance(runs: Mapping[str, Sequence[Stream]], pens: Mapping[str, Pen]) -> Figure:
    """Acceptance through time, means over seeds, with the interval of the main arm, and the number
    of adapters."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    shares, living = dict[str, Curve](), dict[str, Curve]()
    for arm, streams in runs.items():
        answers = sum(len(run.accepted) for run in streams)
        shares[arm] = _course(streams, min(MAX_POINTS, max(answers // MIN_ANSWERS, 2)))
        heights = np.mean([run.record.population for run in streams], axis=0)
        living[arm] = np.arange(len(heights)), heights
    lines(left, shares, pens)
    lines(right, living, pens)
    left.set(xlabel="generation", ylabel="accepted, %", ylim=(0, 100))
    right.set(xlabel="generation", ylabel="adapters", yscale="log")
    right.yaxis.set_major_formatter("{x:g}")
    left.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _course(streams: Sequence[Stream], count: int) -> Curve:
    """Return the accepted share of each part of a run, in percent: the middles of the parts, in
    generations, the means over runs, and of several runs the bounds of Student's interval."""
    length = streams[0].asked.length
    edges = np.linspace(0, length, min(count, length) + 1)
    middles, shares = (edges[1:] + edges[:-1]) / 2, []
    for run in streams:
        asked, _ = np.histogram(run.asked.generations, edges)
        accepted, _ = np.histogram(run.asked.generations, edges, weights=run.accepted)
        shares.append(100 * accepted / np.maximum(asked, 1))
    mean = np.mean(shares, axis=0)
    if len(streams) < 2:
        return middles, mean
    half = stats.t.ppf(0.975, len(streams) - 1) * stats.sem(shares)
    return middles, mean, mean - half, mean + half


def _draw_servers(run: Stream, axis: Axes) -> None:
    """Draw who serves whom through time: a row per user, by kind, and a colour per organelle."""
    servers, kinds = run.servers, run.kinds[:, -1]
    order = np.lexsort((run.asked.world.arrivals, kinds))
    colours = np.ones((*servers.shape, 3))  # white where nobody serves
    busiest = pd.Series(servers[servers >= 0]).value_counts().index
    for place, organelle in enumerate(busiest):
        code = VIEW_COLOURS[place] if place < len(VIEW_COLOURS) else OTHERS_COLOUR
        colours[servers == organelle] = to_rgb(code)
    axis.imshow(colours[order], aspect="auto", interpolation="nearest")
    for edge in np.flatnonzero(np.diff(kinds[order])) + 0.5:
        axis.axhline(edge, color="black", lw=0.8)
    axis.set(xlabel="generation", ylabel="users")
    axis.set_yticks([])
