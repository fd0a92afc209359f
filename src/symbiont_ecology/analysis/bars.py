"""Right answers of several systems by family, as bars with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from symbiont_ecology.analysis.figures import save
from symbiont_ecology.evaluation.measure import Evaluation
from symbiont_ecology.palette import MAIN_COLOUR, VIEW_COLOURS

BAR_COLOURS = ("#c9c9c9", "#8c8c8c", VIEW_COLOURS[0], MAIN_COLOUR)
"""Of systems, the main one last."""


def draw_accuracies(systems: Mapping[str, Evaluation], path: Path) -> None:
    """Groups of bars: a group for every family, and one for all."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    axis = figure.subplots()
    families = list(next(iter(systems.values())).by_family())
    places, width = np.arange(len(families) + 1), 0.8 / len(systems)
    for number, (name, evaluation) in enumerate(systems.items()):
        shares = [*evaluation.by_family().values(), evaluation.accuracy()]
        heights = 100 * np.array([share.estimate for share in shares])
        errors = 100 * np.array([[s.estimate - s.low, s.high - s.estimate] for s in shares]).T
        colour = BAR_COLOURS[(number - len(systems)) % len(BAR_COLOURS)]
        xs = places + (number - (len(systems) - 1) / 2) * width
        axis.bar(xs, heights, 0.9 * width, color=colour, label=name)
        axis.errorbar(xs, heights, errors, fmt="none", ecolor="black", lw=0.8)
    axis.set_xticks(places, [*families, "all"])
    axis.set(ylabel="right, %", ylim=(0, 104))
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    figure.legend(fontsize=9, loc="outside upper center", ncols=len(systems), frameon=False)
    save(figure, path)
