"""The figures of a paper pack: accuracy against compute, differences, energy, retention, and the
flip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.analysis.results import BARE_HOST, SIDES, Results
from symbiont_ecology.analysis.summary import Summary
from symbiont_ecology.experiments.protocol import Protocol
from symbiont_ecology.palette import ARM_COLOURS, MAIN_COLOUR, SECOND_COLOUR

COMPARED = ("in-distribution", "wording", "retention", "flip, area")
"""The views in which differences are drawn."""
PERIODS = 10
"""Parts of a run that the return on energy is summed over."""
Numbers = Sequence[float] | np.ndarray


def draw_all(results: Results, summary: Summary, folder: Path) -> list[str]:
    """Draws every figure that the results have data for; returns the names of the files."""
    painters = {
        "accuracy.png": _accuracy,
        "differences.png": _differences,
        "roi.png": _roi,
        "retention.png": _retention,
        "flip.png": _flip,
    }
    names = []
    for name, draw in painters.items():
        figure = draw(results, summary)
        if figure is not None:
            save(figure, folder / name)
            names.append(name)
    return names


def save(figure: Figure, path: Path) -> None:
    """Writes a figure without date and version, so that equal numbers give equal files."""
    figure.savefig(path, dpi=110, metadata={"Software": None})


@dataclass(frozen=True)
class Pen:
    """Draws the lines of a comparison's arms on an axis."""

    axis: Axes
    protocol: Protocol

    def style(self, arm: str) -> tuple[str, str, float]:
        """Dash, colour and width: dashed where only the routing is another, the colour of the runs
        that it answers with, wide for the arm in question. Of more arms than colours, the further
        ones have dots and dashes."""
        arms = self.protocol.arms
        leads = {self.protocol.main: MAIN_COLOUR, self.protocol.second: SECOND_COLOUR}
        rest = [name for name, side in arms.items() if not side.of and name not in leads]
        runs = self.protocol.runs_of(arm)
        place = 0 if runs in leads else rest.index(runs)
        colour = leads.get(runs) or ARM_COLOURS[place % len(ARM_COLOURS)]
        dash = "--" if runs != arm else ("-", "-.", ":")[place // len(ARM_COLOURS) % 3]
        return dash, colour, 2.6 if arm == self.protocol.main else 1.3

    def curve(
        self, arm: str, xs: Numbers, ys: Numbers, *band: Numbers, label: str | None = None
    ) -> None:
        """An arm's line, and the ``band`` from lowest to highest if it is the main arm."""
        dash, colour, width = self.style(arm)
        self.axis.plot(xs, ys, f".{dash}", color=colour, label=label, lw=width)
        if band and arm == self.protocol.main:
            lowest, highest = band
            self.axis.fill_between(xs, lowest, highest, color=colour, alpha=0.15, lw=0)


def _accuracy(results: Results, summary: Summary) -> Figure:
    """Accuracy against training FLOPs, one panel per view; a band from the lowest to the highest
    seed."""
    budgets, largest = list(summary.accuracy.values()), summary.accuracy[summary.largest]
    columns = min(len(largest), 3)
    rows = -(-len(largest) // columns)
    figure = Figure(figsize=(4.1 * columns, 3.1 * rows), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    flops = [budget * results.protocol.unit_flops for budget in results.protocol.budgets]
    for axis, view in zip(axes, largest, strict=False):
        for arm in results.protocol.arms:
            shares = [views.get(view, {}).get(arm) for views in budgets]
            points = [(x, share) for x, share in zip(flops, shares, strict=True) if share]
            if not points:
                continue
            xs, ys = [x for x, _ in points], [100 * share.estimate for _, share in points]
            low, high = ([100 * end(share.seeds) for _, share in points] for end in (min, max))
            Pen(axis, results.protocol).curve(arm, xs, ys, low, high, label=arm)
        if host := largest[view].get(BARE_HOST):
            axis.axhline(100 * host.estimate, color="black", ls=":", lw=1, label="bare host")
        axis.set(title=view, xscale="log", ylim=(0, 100))
        axis.set_xticks(flops, [f"{tick:.3g}" for tick in flops])
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.3)
    for axis in axes[len(largest) :]:
        axis.axis("off")
    for axis in axes[max(len(largest) - columns, 0) : len(largest)]:
        axis.set_xlabel("useful training FLOPs")
    figure.supylabel("right answers, %", fontsize=10)
    _legend_below(figure, axes[0])
    return figure


def _differences(results: Results, summary: Summary) -> Figure | None:
    """The main arm minus those that learn, at the largest budget: a panel per view, a row per
    arm."""
    views = summary.differences[summary.largest]
    all_views = {**views, "flip, area": summary.flip.differences.get("area")}
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
            axis.plot([low, high], [place, place], color=MAIN_COLOUR, lw=1.3)
            axis.plot(
                middle,
                place,
                "o",
                ms=6,
                mec=MAIN_COLOUR,
                mfc=MAIN_COLOUR if test.is_claimed else "white",
            )
        axis.set(title=view, xlabel="points")
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(len(arms)), [f"{results.protocol.main} − {arm}" for arm in arms])
    axes[0].invert_yaxis()
    return figure


def _roi(results: Results, summary: Summary) -> Figure | None:
    """Revenue over cost through training, at the largest budget, for arms that earn."""
    figure, axis = _single(3.6)
    end = results.largest * results.protocol.unit_flops
    edges = np.linspace(0, end, PERIODS + 1)
    for arm, side in results.protocol.arms.items():
        if side.of:  # it earned what its sister did
            continue
        curves = []
        for run in results.runs(arm, results.largest):
            flops, _, revenue, cost, _ = np.array(run.course or np.zeros((0, 5))).T
            if revenue.any():
                xs = np.minimum(flops, end)  # the last generation may end a rollout later
                revenues, costs = (
                    np.histogram(xs, edges, weights=energy)[0] for energy in (revenue, cost)
                )
                curves.append(
                    np.divide(revenues, costs, out=np.full(PERIODS, np.nan), where=costs > 0)
                )
        if curves:
            grid = (edges[1:] + edges[:-1]) / 2
            mask = ~np.isnan(curves).all(axis=0)  # long generations leave periods without an end
            ratios = np.nanmean(np.array(curves)[:, mask], axis=0)
            Pen(axis, results.protocol).curve(arm, grid[mask], ratios, label=arm)
    if not axis.lines:
        return None
    axis.axhline(1, color="black", ls=":", lw=1)
    axis.set(xlabel="useful training FLOPs", ylabel="revenue ÷ cost (ROI)", ylim=(0, None))
    _legend_beside(axis)
    return figure


def _retention(results: Results, summary: Summary) -> Figure | None:
    """Skill against retention, means over seeds from the smallest budget to the largest point."""
    if not summary.retention.arms:
        return None
    figure, axis = _single(4.2)
    for arm, frontier in summary.retention.arms.items():
        means = 100 * np.array([np.mean(points, axis=0) for points in frontier.points.values()])
        (skill, retention), (dash, colour, width) = means.T, Pen(axis, results.protocol).style(arm)
        axis.plot(skill, retention, dash, color=colour, lw=width, label=arm)
        axis.scatter(skill, retention, s=14 * np.arange(1, len(means) + 1), color=colour, lw=0)
    axis.set(xlabel="skill: right in distribution, %", ylabel="retention of other conventions, %")
    _legend_beside(axis)
    return figure


def _flip(results: Results, summary: Summary) -> Figure | None:
    """Accuracy on families that changed and on those that did not, through the flip and back."""
    plan, unit = results.protocol.flip, results.protocol.unit_flops
    if plan is None or not summary.flip.arms:
        return None
    figure = Figure(figsize=(12.6, 4.2), layout="constrained")
    axes = figure.subplots(1, len(SIDES), sharey=True)
    starts = {"before": plan.at, "flipped": plan.at, "back": plan.back}
    for axis, side in zip(axes, SIDES, strict=True):
        for arm, flip in summary.flip.arms.items():
            for phase, start in starts.items():
                legs = [leg for leg in flip.curves[side] if leg.phase == phase]
                xs = [(start + leg.extra) * unit for leg in legs]
                heights = 100 * np.array([(leg.mean, leg.low, leg.high) for leg in legs]).T
                label = arm if phase == "back" else None
                Pen(axis, results.protocol).curve(arm, xs, *heights, label=label)
        for moment in (plan.at, plan.back):
            axis.axvline(moment * unit, color="black", ls=":", lw=1)
        axis.set(title=f"{side} families", xlabel="useful training FLOPs", ylim=(0, 100))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("right answers, %")
    _legend_below(figure, axes[0])
    return figure


def _single(height: float) -> tuple[Figure, Axes]:
    """A figure of one panel with room for a legend at its side."""
    figure = Figure(figsize=(6.4, height), layout="constrained")
    return figure, figure.subplots()


def _legend_beside(axis: Axes) -> None:
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def _legend_below(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = min(len(labels), 5)
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=columns)
