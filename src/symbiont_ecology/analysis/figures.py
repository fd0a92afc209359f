"""The figures of a paper pack: accuracy against compute, differences, energy, retention, and the
flip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.analysis.comparison import SIDES
from symbiont_ecology.analysis.outcomes import BARE_HOST, Outcomes

MAIN, SECOND = "#17805c", "#8fbf3f"
"""The two arms that a protocol compares with all others."""
COLOURS = (
    "#8c8c8c",
    "#1b6ca8",
    "#5aa9d6",
    "#9ecae1",
    "#3b3f8f",
    "#b5502b",
    "#e0a030",
    "#7a4fa3",
    "#d46a9c",
)
"""One per other arm with runs of its own, in the order of the protocol."""

COMPARED = ("in-distribution", "wording", "retention")
"""The views in which differences are drawn, beside the flip."""
PERIODS = 10
"""Parts of a run that the return on energy is summed over."""


def draw_all(outcomes: Outcomes, summary: Mapping[str, Any], folder: Path) -> list[str]:
    """Draws every figure that the outcomes have data for; returns the names of the files."""
    drawn = {
        "accuracy.png": _accuracy,
        "differences.png": _differences,
        "roi.png": _roi,
        "retention.png": _retention,
        "flip.png": _flip,
    }
    names = []
    for name, draw in drawn.items():
        figure = draw(outcomes, summary)
        if figure is not None:
            # Without date and version, so that equal numbers give equal files.
            figure.savefig(folder / name, dpi=110, metadata={"Software": None})
            names.append(name)
    return names


def _colour(outcomes: Outcomes, arm: str) -> str:
    """Of the runs that an arm answers with."""
    chosen = {outcomes.protocol["main"]: MAIN, outcomes.protocol.get("second"): SECOND}
    others = [
        name for name in outcomes.arms if outcomes.runs_of(name) == name and name not in chosen
    ]
    runs = outcomes.runs_of(arm)
    return chosen.get(runs) or COLOURS[others.index(runs) % len(COLOURS)]


def _width(outcomes: Outcomes, arm: str) -> float:
    """The arm in question stands out."""
    return 2.6 if arm == outcomes.protocol["main"] else 1.3


def _line(outcomes: Outcomes, arm: str) -> str:
    """Dashed where only the routing is another."""
    return "-" if outcomes.runs_of(arm) == arm else "--"


def _curve(
    axis: Axes, outcomes: Outcomes, arm: str, *points: Any, label: str | None = None
) -> None:
    """An arm's line; ``points`` are xs, ys and, for the band that the main arm has, lowest and
    highest."""
    xs, ys, *band = points
    colour, line = _colour(outcomes, arm), _line(outcomes, arm)
    axis.plot(xs, ys, f".{line}", color=colour, label=label, lw=_width(outcomes, arm))
    if band and arm == outcomes.protocol["main"]:
        axis.fill_between(xs, *band, color=colour, alpha=0.15, lw=0)


def _accuracy(outcomes: Outcomes, summary: Mapping[str, Any]) -> Figure | None:
    """Accuracy against training FLOPs, one panel per view; a band from the lowest to the highest
    seed."""
    accuracy, unit = summary["accuracy"], outcomes.protocol["unit_flops"]
    views = list(accuracy[f"{outcomes.budgets[-1]:g}"])
    columns = min(len(views), 3)
    rows = -(-len(views) // columns)
    figure = Figure(figsize=(4.1 * columns, 3.1 * rows), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    flops = [budget * unit for budget in outcomes.budgets]
    for axis, view in zip(axes, views, strict=False):
        for arm in outcomes.arms:
            found = [accuracy[f"{budget:g}"].get(view, {}).get(arm) for budget in outcomes.budgets]
            if all(one is None for one in found):
                continue
            known = [(x, one) for x, one in zip(flops, found, strict=True) if one is not None]
            xs, ys = [x for x, _ in known], [100 * one["estimate"] for _, one in known]
            low, high = ([100 * pick(one["seeds"]) for _, one in known] for pick in (min, max))
            _curve(axis, outcomes, arm, xs, ys, low, high, label=arm)
        host = accuracy[f"{outcomes.budgets[-1]:g}"][view].get(BARE_HOST)
        if host is not None:
            axis.axhline(100 * host["estimate"], color="black", ls=":", lw=1, label="bare host")
        axis.set(title=view, xscale="log", ylim=(0, 100))
        axis.set_xticks(flops, [f"{one:.3g}" for one in flops])
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.3)
    for axis in axes[len(views) :]:
        axis.axis("off")
    for axis in axes[max(len(views) - columns, 0) : len(views)]:
        axis.set_xlabel("useful training FLOPs")
    figure.supylabel("right answers, %", fontsize=10)
    _legend(figure, axes[0], outcomes)
    return figure


def _differences(outcomes: Outcomes, summary: Mapping[str, Any]) -> Figure | None:
    """The main arm minus those that learn, at the largest budget: a panel per view, a row per
    arm."""
    main, flip = outcomes.protocol["main"], summary["flip"]["differences"]
    found = summary["differences"].get(f"{outcomes.budgets[-1]:g}", {})
    panels = {view: found[view] for view in COMPARED if view in found}
    panels |= {"flip, area": flip["area"]} if flip.get("area") else {}
    sees = {arm: sides["sees"] for arm, sides in outcomes.protocol["arms"].items()}
    arms = [
        arm for arm in found.get(outcomes.shifts[0], {}) if sees.get(arm, "nothing") != "nothing"
    ]
    if not arms:
        return None
    figure = Figure(figsize=(1.4 + 2.7 * len(panels), 0.9 + 0.27 * len(arms)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axis, (view, own) in zip(axes, panels.items(), strict=True):
        axis.axvline(0, color="black", lw=1)
        for place, arm in enumerate(arms):
            if (one := own.get(arm)) is None:
                continue
            low, mid, high = (100 * one[key] for key in ("low", "estimate", "high"))
            axis.plot([low, high], [place, place], color=MAIN, lw=1.3)
            axis.plot(mid, place, "o", ms=6, mec=MAIN, mfc=MAIN if one["is_claimed"] else "white")
        axis.set(title=view, xlabel="points")
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(len(arms)), [f"{main} − {arm}" for arm in arms])
    axes[0].invert_yaxis()
    return figure


def _roi(outcomes: Outcomes, summary: Mapping[str, Any]) -> Figure | None:
    """Revenue over cost through training, at the largest budget, for arms that earn."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    budget = outcomes.budgets[-1]
    end = budget * outcomes.protocol["unit_flops"]
    edges = np.linspace(0, end, PERIODS + 1)
    for arm in outcomes.arms:
        if outcomes.runs_of(arm) != arm:  # it earned what its sister did
            continue
        curves = []
        for row in outcomes.main(arm, budget):
            course = np.array(row.get("course") or np.zeros((0, 5)), dtype=float)
            if len(course) and course[:, 2].any():
                xs = np.minimum(course[:, 0], end)  # the last generation may end a rollout later
                earned, spent = (
                    np.histogram(xs, edges, weights=course[:, one])[0] for one in (2, 3)
                )
                curves.append(
                    np.divide(earned, spent, out=np.full(PERIODS, np.nan), where=spent > 0)
                )
        if curves:
            grid = (edges[1:] + edges[:-1]) / 2
            known = ~np.isnan(curves).all(axis=0)  # long generations leave periods without an end
            grid, stacked = grid[known], np.array(curves)[:, known]
            _curve(axis, outcomes, arm, grid, np.nanmean(stacked, axis=0), label=arm)
    if not axis.lines:
        return None
    axis.axhline(1, color="black", ls=":", lw=1)
    axis.set(xlabel="useful training FLOPs", ylabel="revenue ÷ cost (ROI)", ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _retention(outcomes: Outcomes, summary: Mapping[str, Any]) -> Figure | None:
    """Skill against retention, means over seeds from the smallest budget to the largest point."""
    arms = summary["retention"]["arms"]
    if not arms:
        return None
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for arm, found in arms.items():
        means = 100 * np.array([np.mean(points, axis=0) for points in found["points"].values()])
        colour, line = _colour(outcomes, arm), _line(outcomes, arm)
        skill, kept = means.T
        axis.plot(skill, kept, line, color=colour, lw=_width(outcomes, arm), label=arm)
        axis.scatter(skill, kept, s=14 * np.arange(1, len(means) + 1), color=colour, lw=0)
    axis.set(xlabel="skill: right in distribution, %", ylabel="retention of other conventions, %")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _flip(outcomes: Outcomes, summary: Mapping[str, Any]) -> Figure | None:
    """Accuracy on families that changed and on those that did not, through the flip and back."""
    arms = summary["flip"]["arms"]
    if not arms:
        return None
    figure = Figure(figsize=(12.6, 4.2), layout="constrained")
    axes = figure.subplots(1, len(SIDES), sharey=True)
    plan, unit = outcomes.protocol["flip"], outcomes.protocol["unit_flops"]
    since = {"before": plan["at"], "flipped": plan["at"], "back": plan["back"]}
    for axis, name in zip(axes, SIDES, strict=True):
        for arm, found in arms.items():
            for phase, start in since.items():
                legs = [leg for leg in found["curves"][name] if leg["phase"] == phase]
                xs = [(start + leg["extra"]) * unit for leg in legs]
                heights = ([100 * leg[end] for leg in legs] for end in ("mean", "low", "high"))
                _curve(axis, outcomes, arm, xs, *heights, label=arm if phase == "back" else None)
        for moment in ("at", "back"):
            axis.axvline(plan[moment] * unit, color="black", ls=":", lw=1)
        axis.set(title=f"{name} families", xlabel="useful training FLOPs", ylim=(0, 100))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("right answers, %")
    _legend(figure, axes[0], outcomes)
    return figure


def _legend(figure: Figure, axis: Axes, outcomes: Outcomes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, fontsize=8, loc="outside lower center", ncols=min(len(labels), 5)
    )
