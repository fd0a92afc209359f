"""All views of a run as files. Equal histories give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.errors import ConfigError, RunError
from symbiont_ecology.files import written_whole
from symbiont_ecology.history.history import History
from symbiont_ecology.history.timings import Timing
from symbiont_ecology.history.variants import has_trainings
from symbiont_ecology.plots.ascents import (
    answer_lengths,
    centre_looks,
    centre_steps,
    phase_times,
    reward_band,
)
from symbiont_ecology.plots.descent import lineages, muller
from symbiont_ecology.plots.places import archive, cells, servers
from symbiont_ecology.plots.through_time import curves, energy, ranks, trials
from symbiont_ecology.plots.variants import (
    change_gains,
    gene_map,
    life_lines,
    mutation_sizes,
    score_band,
    staying_curve,
)

DOTS_PER_INCH = 200
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
    timings: Sequence[Timing] = (),
) -> list[str]:
    """Draws every view that suits a run into a folder, and returns the names of the files. A file
    that is there is replaced as a whole, so figures can be drawn again while the run goes on.

    Args:
        history: the run.
        folder: is made if it is not there.
        forms: ``"png"``, ``"svg"`` or both.
        changes: generations in which the world changed; dotted lines.
        timings: how long generations took.

    Raises:
        ConfigError: another form.
        RunError: a file cannot be written.
    """
    if unknown := set(forms) - FIGURE_METADATA.keys():
        listed = " and ".join(FIGURE_METADATA)
        raise ConfigError(f"forms: expected some of {listed}, got {', '.join(sorted(unknown))}")
    target, names, moments = Path(folder), list[str](), list(changes)
    with mpl.rc_context():
        mpl.rcdefaults()  # the same figures, whatever the caller's own style
        mpl.rcParams["svg.hashsalt"] = HASH_SALT
        for name, draw in _views(history, moments, timings).items():
            figure = Figure(layout="constrained")
            draw(figure)
            for form in forms:
                _save(figure, target / f"{name}.{form}", FIGURE_METADATA[form])
                names.append(f"{name}.{form}")
    return names


DrawnView = Callable[[Figure], Axes]
"""Draws on a figure."""


def _views(
    history: History, changes: Sequence[int], timings: Sequence[Timing]
) -> dict[str, DrawnView]:
    """Name and drawing of every view that suits the run."""
    rows = "user" if history.servings else "cell"
    views: dict[str, tuple[bool, DrawnView]] = {
        "curves": (True, lambda figure: curves(history, figure, changes)),
        "lineages": (not history.is_alone, lambda figure: lineages(history, figure)),
        "muller": (_has_choice(history), lambda figure: muller(history, figure)),
        "servers": (_has_choice(history), lambda figure: servers(history, figure, changes)),
        "cells": (True, lambda figure: cells(history, figure)),
        "users": (bool(history.servings), lambda figure: cells(history, figure, rows="user")),
        "prices": (
            history.has_economy,
            lambda figure: cells(history, figure, rows=rows, measure="price"),
        ),
        "asked": (True, lambda figure: cells(history, figure, rows=rows, measure="asked")),
        "energy": (history.has_economy, lambda figure: energy(history, figure)),
        "archive": (not history.is_alone, lambda figure: archive(history, figure)),
        "ranks": (not history.is_alone, lambda figure: ranks(history, figure)),
        "trials": (
            history.has_economy or bool(history.trials),
            lambda figure: trials(history, figure),
        ),
        "phases": (any(t.phases for t in timings), lambda figure: phase_times(timings, figure)),
    }
    suited = {name: draw for name, (suits, draw) in views.items() if suits}
    return {**suited, **_method_views(history)}


def _has_choice(history: History) -> bool:
    """Whether it matters who answers: not where one organelle, or everybody, is asked the same."""
    return not (history.is_alone or history.has_exams)


def _method_views(history: History) -> dict[str, DrawnView]:
    """Those of evolution strategies, and of selection by exams."""
    views: dict[str, tuple[bool, Callable[[History, Figure], Axes]]] = {
        "rewards": (bool(history.ascents), reward_band),
        "lengths": (bool(history.ascents), answer_lengths),
        "steps": (bool(history.ascents), centre_steps),
        "looks": (bool(history.ascents and history.probes), centre_looks),
        "scores": (history.has_exams, score_band),
        "staying": (history.has_exams, staying_curve),
        "gains": (history.has_exams, change_gains),
        "sigmas": (any("sigma" in traits for traits in history.traits.values()), mutation_sizes),
        "genes": (has_trainings(history), gene_map),
        "lives": (has_trainings(history), life_lines),
    }
    return {name: partial(draw, history) for name, (suits, draw) in views.items() if suits}


def _save(figure: Figure, path: Path, metadata: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            figure.savefig(
                temporary, format=path.suffix[1:], dpi=DOTS_PER_INCH, metadata=dict(metadata)
            )
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
