"""The figures of comparisons: accuracy against compute, differences, energy, retention, the flip,
families one after another, and for worlds how much is accepted and who serves whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from scipy import stats

from symbiont_ecology.ecology import HOST
from symbiont_ecology.evaluate.measure import Evaluation
from symbiont_ecology.extensions.evoscope.palette import (
    ARM_COLOURS,
    MAIN_COLOUR,
    OTHERS_COLOUR,
    SECOND_COLOUR,
    VIEW_COLOURS,
)
from symbiont_ecology.extensions.study.comparison import Summary
from symbiont_ecology.extensions.study.measures import SIDES, Stream
from symbiont_ecology.extensions.study.results import Results

COMPARED = ("in-distribution", "wording", "retention", "flip, area")
"""The views in which differences are drawn."""
PERIODS = 10
"""Parts of a run that the return on energy is summed over."""
MAX_POINTS, MIN_ANSWERS, DEMO_POINTS = 40, 400, 26
"""Points of a curve at most, and answers of all seeds to a point at least; points in the demo."""
TICKS = (1, 2, 3, 4, 6, 8, 12, 24, 50, 100, 200, 500, 1000)
BAR_COLOURS = ("#c9c9c9", "#8c8c8c", VIEW_COLOURS[0], MAIN_COLOUR)
"""Of systems, the main one last."""
_NOBODY = "#ffffff"
WIDE, THIN = 2.6, 1.3
"""Widths of lines, in points."""
Curve = tuple[np.ndarray, ...]
"""Points, heights, and for a band the lowest and the highest."""


def save(figure: Figure, path: Path) -> None:
    """Write a figure without date and version, so that equal numbers give equal files."""
    figure.savefig(path, dpi=110, metadata={"Software": None})


@dataclass(frozen=True)
class Pen:
    """The line of an arm: wide for the arm in question, dashed where only the routing is another.
    Of more arms than colours, the further ones have dots and dashes."""

    dash: str
    colour: str
    width: float

    def draw(self, axis: Axes, curve: Curve, label: str | None = None, marker: str = "") -> None:
        """Draw a line; around a wide one, the band between its lowest and highest values."""
        axis.plot(*curve[:2], marker + self.dash, color=self.colour, label=label, lw=self.width)
        if len(curve) > 2 and self.width > THIN:
            xs, _, lowest, highest = curve
            axis.fill_between(xs, lowest, highest, color=self.colour, alpha=0.15, lw=0)


def pens_of(
    arms: Sequence[str], main: str, second: str | None = None, of: Mapping[str, str] | None = None
) -> dict[str, Pen]:
    """Return the pen of every arm; ``of`` names the arm whose runs, and colour, another one has."""
    pens, places, runs_of = dict[str, Pen](), dict[str, int](), of or {}
    for arm in arms:
        runs = runs_of.get(arm, arm)
        if runs in (main, second):
            colour, dash = MAIN_COLOUR if runs == main else SECOND_COLOUR, "-"
        else:
            rounds, place = divmod(places.setdefault(runs, len(places)), len(ARM_COLOURS))
            colour, dash = ARM_COLOURS[place], ("-", "-.", ":")[rounds % 3]
        pens[arm] = Pen("--" if runs != arm else dash, colour, WIDE if arm == main else THIN)
    return pens


def _pens(results: Results) -> dict[str, Pen]:
    arms = results.protocol.arms
    of = {name: arm.of for name, arm in arms.items() if arm.of}
    return pens_of(list(arms), results.protocol.main, results.protocol.second, of)


def _panels(
    panels: Mapping[str, Mapping[str, Curve]],
    pens: Mapping[str, Pen],
    size: tuple[float, float],
    labels: tuple[str, str],
    ylim: tuple[float | None, float | None] = (0, 100),
) -> tuple[Figure, list[Axes]]:
    """Lines of arms in panels, at most three beside each other, with one legend."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel())
    for axis, (title, curves) in zip(axes, panels.items(), strict=False):
        for arm, pen in pens.items():
            if arm in curves:
                pen.draw(axis, curves[arm], arm, ".")
        axis.set(title=title, ylim=ylim)
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.axis("off")
    for axis in axes[max(len(panels) - columns, 0) : len(panels)]:
        axis.set_xlabel(labels[0])
    figure.supylabel(labels[1], fontsize=10)
    return figure, axes[: len(panels)]


def _legend_below(figure: Figure, axis: Axes, columns: int = 5) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = min(len(labels), columns, int(figure.get_figwidth() / 2))
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=columns)


def _legend_beside(axis: Axes) -> None:
    """A legend at the right, lines in the order in which they end."""
    handles, labels = axis.get_legend_handles_labels()
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in handles]  # type: ignore[attr-defined]
    order = np.argsort(ends)[::-1]
    axis.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        fontsize=8,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
    )


# Budgets.


def draw_all(results: Results, summary: Summary, folder: Path) -> list[str]:
    """Draw every figure that the results have data for; return the names of the files."""
    painters = {
        "accuracy.png": _accuracy,
        "differences.png": _differences,
        "roi.png": _roi,
        "retention.png": _retention,
        "flip.png": _flip,
        "stages.png": _stages,
    }
    figures = {name: draw(results, summary) for name, draw in painters.items()}
    return _saved({name: figure for name, figure in figures.items() if figure is not None}, folder)


def _saved(figures: Mapping[str, Figure], folder: Path) -> list[str]:
    for name, figure in figures.items():
        save(figure, folder / name)
    return list(figures)


def _accuracy(results: Results, summary: Summary) -> Figure:
    """Accuracy against training FLOPs, one panel per view; a band from the lowest to the highest
    seed of the main arm."""
    flops = [budget * results.protocol.unit_flops for budget in results.protocol.budgets]
    views = summary.accuracy[summary.largest]
    panels: dict[str, dict[str, Curve]] = {view: {} for view in views}
    for view, curves in panels.items():
        for arm in results.protocol.arms:
            shares = [own.get(view, {}).get(arm) for own in summary.accuracy.values()]
            points = [(x, share) for x, share in zip(flops, shares, strict=True) if share]
            rows = [(x, one.estimate, min(one.seeds), max(one.seeds)) for x, one in points]
            if rows:
                xs, *heights = np.array(rows).T
                curves[arm] = xs, *(100 * height for height in heights)
    labels = "useful training FLOPs", "right answers, %"
    figure, axes = _panels(panels, _pens(results), (4.1, 3.1), labels)
    for axis, view in zip(axes, views, strict=True):
        if host := views[view].get(HOST):
            axis.axhline(100 * host.estimate, color="black", ls=":", lw=1, label="bare host")
        axis.set_xscale("log")
        axis.set_xticks(flops, [f"{tick:.3g}" for tick in flops])
        axis.set_xticks([], minor=True)
    _legend_below(figure, axes[0])
    return figure


def _differences(results: Results, summary: Summary) -> Figure | None:
    """The main arm minus those that learn, at the largest budget: a panel per view, a row per
    arm."""
    views = summary.differences[summary.largest]
    all_views = {**views, "flip, area": summary.flip["differences"].get("area")}
    panels = {view: tests for view in COMPARED if (tests := all_views.get(view))}
    learners = [arm for arm, side in results.protocol.arms.items() if side.sees != "nothing"]
    arms = [arm for arm in views.get(results.protocol.shifts[0], {}) if arm in learners]
    if not arms:
        return None
    figure = Figure(figsize=(1.4 + 2.7 * len(panels), 0.9 + 0.27 * len(arms)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axis, (view, tests) in zip(axes, panels.items(), strict=True):
        axis.axvline(0, color="black", lw=1)
        for place, arm in enumerate(arms):
            if (test := tests.get(arm)) is None:
                continue
            low, middle, high = 100 * test.low, 100 * test.estimate, 100 * test.high
            fill = MAIN_COLOUR if test.is_claimed else "white"
            axis.plot([low, high], [place, place], color=MAIN_COLOUR, lw=1.3)
            axis.plot(middle, place, "o", ms=6, mec=MAIN_COLOUR, mfc=fill)
        axis.set(title=view, xlabel="points")
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(len(arms)), [f"{results.protocol.main} − {arm}" for arm in arms])
    axes[0].invert_yaxis()
    return figure


def _roi(results: Results, summary: Summary) -> Figure | None:
    """Revenue over cost through training, at the largest budget, for arms that earn."""
    end, curves = results.largest * results.protocol.unit_flops, dict[str, Curve]()
    edges = np.linspace(0, end, PERIODS + 1)
    for arm, side in results.protocol.arms.items():
        ratios = []
        for run in results.runs(arm, results.largest):
            course = run.run.course if run.run else []
            flops, _, revenue, cost, _ = np.array(course or np.zeros((0, 5))).T
            if revenue.any() and not side.of:  # which earned what its sister did
                xs = np.minimum(flops, end)  # the last generation may end a rollout later
                earned, spent = (np.histogram(xs, edges, weights=e)[0] for e in (revenue, cost))
                empty = np.full(PERIODS, np.nan)
                ratios.append(np.divide(earned, spent, out=empty, where=spent > 0))
        if ratios:
            mask = ~np.isnan(ratios).all(axis=0)  # long generations leave periods without an end
            grid = ((edges[1:] + edges[:-1]) / 2)[mask]
            curves[arm] = grid, np.nanmean(np.array(ratios)[:, mask], axis=0)
    if not curves:
        return None
    labels = "useful training FLOPs", "revenue ÷ cost (ROI)"
    figure, (axis,) = _panels({"": curves}, _pens(results), (6.4, 4.2), labels, (0, None))
    axis.axhline(1, color="black", ls=":", lw=1)
    _legend_below(figure, axis)
    return figure


def _retention(results: Results, summary: Summary) -> Figure | None:
    """Skill against retention, means over seeds from the smallest budget to the largest point."""
    curves, pens = dict[str, Curve](), _pens(results)
    for arm, frontier in summary.retention["arms"].items():
        means = [np.mean(points, axis=0) for points in frontier["points"].values()]
        curves[arm] = tuple(100 * np.array(means).T)
    if not curves:
        return None
    labels = "skill: right in distribution, %", "retention of other conventions, %"
    figure, (axis,) = _panels({"": curves}, pens, (6.4, 4.8), labels, (None, None))
    for arm, (skill, retention) in curves.items():
        sizes = 14 * np.arange(1, len(skill) + 1)
        axis.scatter(skill, retention, s=sizes, color=pens[arm].colour, lw=0)
    _legend_below(figure, axis)
    return figure


def _flip(results: Results, summary: Summary) -> Figure | None:
    """Accuracy on families that changed and on those that did not, through the flip and back."""
    plan, unit = results.protocol.flip, results.protocol.unit_flops
    if plan is None or not summary.flip["arms"]:
        return None
    starts = {"before": plan.at, "flipped": plan.at, "back": plan.back}
    panels: dict[str, dict[str, Curve]] = {f"{side} families": {} for side in SIDES}
    for arm, flip in summary.flip["arms"].items():
        for title, side in zip(panels, SIDES, strict=True):
            rows = []
            for phase, start in starts.items():
                legs = [leg for leg in flip["curves"][side] if leg["phase"] == phase]
                shares = [[100 * leg[key] for key in ("mean", "low", "high")] for leg in legs]
                moments = [(start + leg["extra"]) * unit for leg in legs]
                rows += [(x, *own) for x, own in zip(moments, shares, strict=True)]
                rows.append((np.nan,) * 4)  # the line ends here
            panels[title][arm] = tuple(np.array(rows).T)
    labels = "useful training FLOPs", "right answers, %"
    figure, axes = _panels(panels, _pens(results), (4.2, 4.2), labels)
    for axis in axes:
        for moment in (plan.at, plan.back):
            axis.axvline(moment * unit, color="black", ls=":", lw=1)
    _legend_below(figure, axes[0])
    return figure


def _stages(results: Results, summary: Summary) -> Figure | None:
    """A panel per arm: what is right of each family, from the end of its own stage on."""
    courses = summary.stages.get("courses", {})
    if not courses:
        return None
    columns = min(len(courses), 4)
    rows = -(-len(courses) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axis in enumerate(axes.flat):
        axis.set_visible(place < len(courses))
    for axis, (arm, course) in zip(axes.flat, courses.items(), strict=False):
        for number, (family, shares) in enumerate(course.items()):
            colour = VIEW_COLOURS[number % len(VIEW_COLOURS)]
            xs, heights = np.arange(1, len(shares) + 1), 100 * np.array(shares)
            axis.plot(xs[: number + 1], heights[: number + 1], ":", color=colour, lw=1)
            axis.plot(xs[number:], heights[number:], "o-", color=colour, ms=3, label=family)
        weight = "bold" if arm == results.protocol.main else None
        axis.set_title(arm, fontsize=9, fontweight=weight)
        axis.set(ylim=(-3, 103), xticks=np.arange(1, len(course) + 1))
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("right, %")
    for axis in axes[-1]:
        axis.set_xlabel("families that came")
    _legend_below(figure, axes[0][0], 6)
    return figure


# Worlds, and the demos.


def draw_worlds(results: Results, folder: Path) -> list[str]:
    """Draw every figure of a suite of worlds; return the names of the files. A world in which the
    main arm has not lived yet has none."""
    main, figures = results.protocol.main, dict[str, Figure]()
    for world in results.protocol.worlds:
        lived = {arm: results.streams.get((world, arm), {}) for arm in results.protocol.arms}
        runs = {arm: list(own.values()) for arm, own in lived.items() if own}
        if main in runs:
            figures[f"{world}.png"] = _acceptance(runs, _pens(results), main)
            figures[f"{world}-servers.png"] = _servers(runs[main][0])
    return _saved(figures, folder)


def draw_demo(runs: Mapping[str, Stream], main: str, path: Path) -> None:
    """Draw one picture of one seed: acceptance of all arms above, who serves whom in the main arm
    below."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1, 1.1), sharex=True)
    for arm, pen in pens_of(list(runs), main).items():
        xs, ys = _curve(runs[arm], DEMO_POINTS)
        pen.draw(above, (xs, 100 * ys), arm)
    above.set(ylabel="accepted answers, %", ylim=(0, 100))
    above.grid(alpha=0.3)
    _legend_beside(above)
    _draw_servers(runs[main], below)
    below.set_ylabel("users, by what they want at the end")
    record = runs[main].record
    moments = {"^": [moment for moment, _ in record.births], "x": record.deaths}
    for place, (marker, generations) in enumerate(moments.items()):  # along the upper edge
        ys = np.full(len(generations), 1.025 + 0.035 * place)
        edge = below.get_xaxis_transform()
        below.plot(
            generations, ys, marker, color="black", ms=4, mew=1, clip_on=False, transform=edge
        )
    if (moment := runs[main].asked.world.config.drift_at) is not None:
        for axis in (above, below):
            axis.axvline(moment, color="black", ls=":", lw=1)
        words = "some users change their mind"
        above.annotate(words, (moment, 4), (4, 0), textcoords="offset points", fontsize=9)
    title = (
        "who answers whom: a row per user, a colour per adapter; ▲ an adapter is born, ✕ one dies"
    )
    below.set_title(title, fontsize=9, loc="left", pad=20)
    save(figure, path)


def draw_accuracies(systems: Mapping[str, Evaluation], path: Path) -> None:
    """Draw groups of bars, right answers of several systems with their intervals: a group for every
    family, and one for all."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    axis = figure.subplots()
    shares = {name: {**own.by_family(), "all": own.accuracy()} for name, own in systems.items()}
    heights = 100 * pd.DataFrame(shares).map(lambda share: share.estimate)
    lows, highs = (
        100 * pd.DataFrame(shares).map(lambda share, end=end: getattr(share, end))
        for end in ("low", "high")
    )
    errors = np.array([heights - lows, highs - heights]).transpose(2, 0, 1)
    colours = BAR_COLOURS[-len(systems) :]
    heights.plot.bar(ax=axis, yerr=errors, color=colours, width=0.75, rot=0, error_kw={"lw": 0.8})
    axis.set(ylabel="right, %", ylim=(0, 104))
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
    save(figure, path)


def _acceptance(runs: Mapping[str, Sequence[Stream]], pens: Mapping[str, Pen], main: str) -> Figure:
    """Acceptance through time, means over seeds, with the interval of the main arm, and the number
    of adapters."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    for arm, streams in sorted(runs.items(), key=lambda entry: entry[0] == main):  # it is on top
        answers = sum(len(run.accepted) for run in streams)
        points = min(MAX_POINTS, max(answers // MIN_ANSWERS, 2))
        xs, shares = zip(*(_curve(run, points) for run in streams), strict=True)
        middle, half = 100 * np.mean(shares, axis=0), np.zeros(1)
        if len(streams) > 1:
            half = stats.t.ppf(0.975, len(streams) - 1) * stats.sem(100 * np.array(shares))
        pens[arm].draw(left, (xs[0], middle, middle - half, middle + half), arm)
        living = np.mean([run.record.population for run in streams], axis=0)
        pens[arm].draw(right, (np.arange(len(living)), living))
    left.set(xlabel="generation", ylabel="accepted, %", ylim=(0, 100))
    right.set(xlabel="generation", ylabel="adapters", yscale="log")
    low, high = right.get_ylim()
    right.set_yticks([tick for tick in TICKS if low <= tick <= high])
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.yaxis.set_minor_formatter(NullFormatter())
    for axis in (left, right):
        axis.grid(alpha=0.3)
    _legend_beside(left)
    return figure


def _servers(run: Stream) -> Figure:
    """Who serves whom in one run."""
    rows = len(run.asked.world.names)
    figure = Figure(figsize=(9.6, 1.5 + min(rows, 120) / 36), layout="constrained")
    axis = figure.subplots()
    _draw_servers(run, axis)
    axis.set_title(
        f"who answers whom, seed {run.seed}: a row per user, by what they want at the end; a "
        f"colour for each of the {len(VIEW_COLOURS)} busiest organelles",
        fontsize=9,
    )
    return figure


def _draw_servers(run: Stream, axis: Axes) -> None:
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


def _curve(run: Stream, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The middle of each part of a run, in generations, and the share that was accepted in it."""
    edges = np.linspace(0, run.asked.length, min(points, run.asked.length) + 1)
    counts, _ = np.histogram(run.asked.generations, edges)
    accepted, _ = np.histogram(run.asked.generations, edges, weights=run.accepted)
    return (edges[1:] + edges[:-1]) / 2, accepted / np.maximum(counts, 1)
