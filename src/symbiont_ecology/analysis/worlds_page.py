"""The page and the figures of a suite of worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from symbiont_ecology.analysis.figures import COLOURS, MAIN
from symbiont_ecology.analysis.page import NO_VALUE, render, spread
from symbiont_ecology.analysis.streams import NO_SHARES, Stream
from symbiont_ecology.analysis.worlds import Test, Value, WorldResults
from symbiont_ecology.experiments.outcomes import Chosen

TITLES = {
    "late": "last quarter, %",
    "newcomers": "newcomers, %",
    "adapters": "adapters at the end",
    "exact": "kinds found, % of seeds",
    "back": "moved: after 10 questions ÷ before, %",
    "others": "the others: after − before, points",
    "returns": "30 questions after a return, %",
    "thirds": "last third of a regime, %",
    "honest": "without the random user, %",
    "scored": "sketched or scored per question",
    "flops": "FLOPs",
}
"""Columns of the tables, by measure."""
ONLY = {"exact": "town", "honest": "noise"}
"""Measures that are shown where the name of a world begins so."""
CURVE_POINTS = 40
"""Points of a curve."""


def render_worlds(
    results: WorldResults, chosen: Chosen, figures: Sequence[str], digest: str
) -> str:
    """The page; ``figures`` are the files that were drawn."""

    def names(arms: Mapping[str, Mapping[str, Value]], world: str) -> list[str]:
        """The measures that a table shows."""
        present = {name for values in arms.values() for name in values}
        return [name for name in TITLES if name in present and world.startswith(ONLY.get(name, ""))]

    def chosen_by(arm: str) -> str:
        """What tuning chose, by world."""
        options = results.protocol.arms[arm].tune
        parts = [
            f"{world}: {' '.join(options[by_arm[arm]]) or 'as it is'}"
            for world, by_arm in chosen.items()
            if arm in by_arm
        ]
        return "; ".join(parts) or "nothing to choose"

    return render(
        "worlds.md.j2",
        results=results,
        figures=figures,
        digest=digest,
        counts=NO_SHARES,
        titles=TITLES,
        names=names,
        chosen_by=chosen_by,
        measured=measured,
        tested=tested,
    )


def measured(value: Value | None, measure: str) -> str:
    """A mean with its interval, in the unit of its column."""
    if value is None:
        return NO_VALUE
    if measure == "flops":
        return f"{value.estimate:.2g}"
    return spread(value, 1 if measure in NO_SHARES else 100)


def tested(test: Test | None) -> str:
    """A difference with its interval and q; bold where it is claimed."""
    if test is None:
        return NO_VALUE
    mark = "**" if test.is_claimed else ""
    return f"{spread(test, 100, '+.1f', mark=mark)} q={test.q:.2g}"


def draw_worlds(results: WorldResults, folder: Path) -> list[str]:
    """Draws every figure; returns the names of the files."""
    names = []
    for world in results.measures:
        drawn = {
            f"{world}.png": _curves(results, world),
            f"{world}-servers.png": _servers(results, world),
        }
        for name, figure in drawn.items():
            # Without date and version, so that equal numbers give equal files.
            figure.savefig(folder / name, dpi=110, metadata={"Software": None})
            names.append(name)
    return names


def _curves(results: WorldResults, world: str) -> Figure:
    """Acceptance through time, means over seeds, and the number of adapters."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    others = [arm for arm in results.protocol.arms if arm != results.protocol.main]
    for arm in results.measures[world]:
        is_main = arm == results.protocol.main
        colour = MAIN if is_main else COLOURS[others.index(arm) % len(COLOURS)]
        dash = "-" if is_main or others.index(arm) < len(COLOURS) else "--"
        runs = list(results.runs[world, arm].values())
        xs, shares = zip(*(_curve(run) for run in runs), strict=True)
        width = 2.6 if is_main else 1.3
        left.plot(xs[0], 100 * np.mean(shares, axis=0), dash, color=colour, lw=width, label=arm)
        living = np.mean([run.outcome.population for run in runs], axis=0)
        right.plot(living, dash, color=colour, lw=width)
    left.set(xlabel="generation", ylabel="accepted, %", ylim=(0, 100))
    right.set(xlabel="generation", ylabel="adapters", yscale="log")
    ticks = [1, 2, 3, 4, 6, 8, 12, 24, 50, 100, 200, 500, 1000]
    low, high = right.get_ylim()
    right.set_yticks([tick for tick in ticks if low <= tick <= high])
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.yaxis.set_minor_formatter(NullFormatter())
    for axis in (left, right):
        axis.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure


def _curve(run: Stream) -> tuple[np.ndarray, np.ndarray]:
    """The middle of each part of a run, in generations, and the share that was accepted in it."""
    edges = np.linspace(0, run.asked.length, min(CURVE_POINTS, run.asked.length) + 1)
    counts, _ = np.histogram(run.asked.generations, edges)
    accepted, _ = np.histogram(run.asked.generations, edges, weights=run.accepted)
    return (edges[1:] + edges[:-1]) / 2, accepted / np.maximum(counts, 1)


def _servers(results: WorldResults, world: str) -> Figure:
    """Who serves whom through time in the main arm, first seed: a row per habitat, by kind, and a
    colour per organelle."""
    run = next(iter(results.runs[world, results.protocol.main].values()))
    servers, kinds = run.servers, run.kinds[:, -1]
    order = np.lexsort((run.asked.world.arrivals, kinds))
    serving = [one for one in np.unique(servers) if one >= 0]
    busiest = sorted(serving, key=lambda one: -int((servers == one).sum()))
    colours = np.full((*servers.shape, 3), 1.0)
    for place, one in enumerate(busiest):
        shade = _PALETTE[place] if place < len(_PALETTE) else (0.75, 0.75, 0.75)
        colours[servers == one] = shade
    figure = Figure(figsize=(9.6, 1.2 + min(len(servers), 120) / 36), layout="constrained")
    axis = figure.subplots()
    axis.imshow(colours[order], aspect="auto", interpolation="nearest")
    for edge in np.flatnonzero(np.diff(kinds[order])) + 0.5:
        axis.axhline(edge, color="black", lw=0.8)
    axis.set(xlabel="generation", ylabel="users, by kind")
    axis.set_yticks([])
    axis.set_title(
        f"who answers whom: one colour per organelle, the {len(_PALETTE)} busiest; seed "
        f"{run.outcome.seed}",
        fontsize=9,
    )
    return figure


_PALETTE = tuple(
    tuple(int(code[place : place + 2], 16) / 255 for place in (1, 3, 5))
    for code in (
        "#17805c",
        "#e0a030",
        "#1b6ca8",
        "#b5502b",
        "#7a4fa3",
        "#8fbf3f",
        "#d46a9c",
        "#5aa9d6",
        "#8b6b3d",
        "#3b3f8f",
        "#c9c04a",
        "#4aa89a",
    )
)
