"""All views of a run as files. Equal histories give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.history.history import History
from symbiont_ecology.plots.descent import lineages, muller
from symbiont_ecology.plots.places import archive, cells, servers
from symbiont_ecology.plots.through_time import curves, energy, ranks, trials

DOTS_PER_INCH = 120
FIGURE_METADATA: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
}
"""The forms of a figure, and what is left out of its file: dates and versions."""
HASH_SALT = "symbiont"
"""Names within an SVG file are drawn from it."""


def save_figures(
    history: History,
    folder: str | Path,
    forms: Sequence[str] = ("png", "svg"),
    changes: Iterable[int] = (),
) -> list[str]:
    """Draws every view of a run into a folder, and returns the names of the files.

    Args:
        history: the run.
        folder: is made if it is not there.
        forms: ``"png"``, ``"svg"`` or both.
        changes: generations in which the world changed; dotted lines.

    Raises:
        ConfigError: another form.
        RunError: a file cannot be written.
    """
    if unknown := set(forms) - FIGURE_METADATA.keys():
        known = " and ".join(FIGURE_METADATA)
        raise ConfigError(f"forms: expected some of {known}, got {', '.join(sorted(unknown))}")
    target, names, moments = Path(folder), list[str](), list(changes)
    with mpl.rc_context():
        mpl.rcdefaults()  # the same figures, whatever the caller's own style
        mpl.rcParams["svg.hashsalt"] = HASH_SALT
        for name, draw in _views(history, moments).items():
            figure = Figure(layout="constrained")
            draw(figure)
            for form in forms:
                _save(figure, target / f"{name}.{form}", FIGURE_METADATA[form])
                names.append(f"{name}.{form}")
    return names


def _views(history: History, changes: Sequence[int]) -> dict[str, Callable[[Figure], Axes]]:
    """Name and drawing of every view."""
    rows = "user" if history.servings else "cell"
    views: dict[str, Callable[[Figure], Axes]] = {
        "curves": lambda figure: curves(history, figure, changes),
        "lineages": lambda figure: lineages(history, figure),
        "muller": lambda figure: muller(history, figure),
        "servers": lambda figure: servers(history, figure, changes),
        "cells": lambda figure: cells(history, figure),
        "users": lambda figure: cells(history, figure, rows="user"),
        "prices": lambda figure: cells(history, figure, rows=rows, measure="price"),
        "asked": lambda figure: cells(history, figure, rows=rows, measure="asked"),
        "energy": lambda figure: energy(history, figure),
        "archive": lambda figure: archive(history, figure),
        "ranks": lambda figure: ranks(history, figure),
        "trials": lambda figure: trials(history, figure),
    }
    if not history.servings:
        del views["users"]
    return views


def _save(figure: Figure, path: Path, metadata: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata=dict(metadata))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
