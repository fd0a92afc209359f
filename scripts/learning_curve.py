"""Learning curves from event logs: accuracy on fresh practice questions against useful FLOPs spent.

Every practice question is new, so the verdicts of a generation measure ability on the train split
before it is learned from. They are sampled at temperature 1 and stand below greedy accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from symbiont_ecology.events import GenerationEnded, read_events

POINTS = 60
CURVE_COLOURS = {"ecology": "#1b7f5c", "single adapter": "#b4552d", "frozen": "#666666"}


def curve(events: Path, grid: np.ndarray) -> np.ndarray:
    """Accuracy at each of the ``grid``'s FLOPs, ``(points,)``: of the rollouts of five
    generations."""
    ended = [event for event in read_events(events) if isinstance(event, GenerationEnded)]
    flops = np.array([event.train_flops for event in ended], dtype=float)
    # By rollouts: the last generations before a budget ends may be small.
    rows = np.array([event.rows for event in ended], dtype=float)
    window = np.ones(min(5, len(ended)))
    right = np.convolve(
        [(event.accuracy or 0.0) * event.rows for event in ended], window, mode="valid"
    )
    smooth = right / np.maximum(np.convolve(rows, window, mode="valid"), 1)
    return np.asarray(np.interp(grid, flops[len(window) - 1 :], smooth))


def draw(runs: Mapping[str, Sequence[Path]], most_flops: float, file: Path) -> None:
    """One line per arm (mean over its runs' event logs) in a band from the lowest to the highest
    run."""
    import matplotlib.pyplot as plt

    grid = np.linspace(0, most_flops, POINTS)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for arm, logs in runs.items():
        curves = 100 * np.stack([curve(log, grid) for log in logs])
        axes.fill_between(
            grid,
            curves.min(0),
            curves.max(0),
            color=CURVE_COLOURS.get(arm),
            alpha=0.18,
            linewidth=0,
        )
        axes.plot(
            grid, curves.mean(0), color=CURVE_COLOURS.get(arm), label=f"{arm}, {len(logs)} seeds"
        )
    axes.set(
        xlabel="useful FLOPs spent", ylabel="right answers on fresh questions, %", ylim=(0, 100)
    )
    axes.set_xlim(0, most_flops)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)
