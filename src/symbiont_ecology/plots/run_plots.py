"""The views of one run, as methods: ``run.plot.lineages()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.history.history import History
from symbiont_ecology.plots import descent, files, places, through_time


@dataclass(frozen=True, repr=False)
class RunPlots:
    """Every method draws on ``ax``, or on a new figure, and returns the axes.

    ``changes`` are generations in which the world changed.
    """

    history: History
    changes: Sequence[int] = ()

    def __repr__(self) -> str:
        public = [name for name, made in vars(RunPlots).items() if callable(made)]
        return f"<plots: {', '.join(name for name in public if not name.startswith('_'))}>"

    def curves(self, ax: Axes | Figure | None = None) -> Axes:
        """Right answers and how many are alive."""
        return through_time.curves(self.history, ax, self.changes)

    def lineages(self, ax: Axes | Figure | None = None) -> Axes:
        """A bar for every life, and lines from parents."""
        return descent.lineages(self.history, ax)

    def muller(self, ax: Axes | Figure | None = None) -> Axes:
        """Shares of answers; children grow out of parents."""
        return descent.muller(self.history, ax)

    def servers(self, ax: Axes | Figure | None = None) -> Axes:
        """Who serves whom through time."""
        return places.servers(self.history, ax, self.changes)

    def cells(
        self, ax: Axes | Figure | None = None, *, rows: str = "cell", measure: str = "right"
    ) -> Axes:
        """A heat map of ``"cell"`` or ``"user"``: ``"right"``, ``"price"`` or ``"asked"``."""
        return places.cells(self.history, ax, rows=rows, measure=measure)

    def energy(self, ax: Axes | Figure | None = None) -> Axes:
        """Where energy came from and went."""
        return through_time.energy(self.history, ax)

    def archive(self, ax: Axes | Figure | None = None, generation: int | None = None) -> Axes:
        """Who holds which place of the archive."""
        return places.archive(self.history, ax, generation)

    def ranks(self, ax: Axes | Figure | None = None) -> Axes:
        """How many organelles have which rank."""
        return through_time.ranks(self.history, ax)

    def trials(self, ax: Axes | Figure | None = None) -> Axes:
        """Who was on trial, and the verdicts."""
        return through_time.trials(self.history, ax)

    def save(self, folder: str | Path, forms: Sequence[str] = ("png", "svg")) -> list[str]:
        """Draws all views into a folder; returns the names of the files."""
        return files.save_figures(self.history, folder, forms, self.changes)
