"""The views of one run, as methods: ``run.plot.lineages()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from symbiont_ecology.history.history import History
from symbiont_ecology.history.timings import Timing
from symbiont_ecology.plots import ascents, descent, files, places, through_time, variants


@dataclass(frozen=True, repr=False)
class RunPlots:
    """Every method draws on ``ax``, or on a new figure, and returns the axes.

    ``changes`` are generations in which the world changed, ``timings`` say how long they took.
    """

    history: History
    changes: Sequence[int] = ()
    timings: Sequence[Timing] = ()

    def __repr__(self) -> str:
        public = [name for name, value in vars(RunPlots).items() if callable(value)]
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

    def rewards(self, ax: Axes | Figure | None = None) -> Axes:
        """What the members of a population of noise earned: mean, best, band."""
        return ascents.reward_band(self.history, ax)

    def lengths(self, ax: Axes | Figure | None = None) -> Axes:
        """How long the members' answers are, and how many have no text."""
        return ascents.answer_lengths(self.history, ax)

    def looks(self, ax: Axes | Figure | None = None) -> Axes:
        """The centre of evolution strategies beside the bare host."""
        return ascents.centre_looks(self.history, ax)

    def steps(self, ax: Axes | Figure | None = None) -> Axes:
        """How far the centre goes, and how much noise its members have."""
        return ascents.centre_steps(self.history, ax)

    def phases(self, ax: Axes | Figure | None = None) -> Axes:
        """Seconds by phase of a generation."""
        return ascents.phase_times(self.timings, ax)

    def scores(self, ax: Axes | Figure | None = None) -> Axes:
        """Scores of everyone alive at every exam: mean, best, band."""
        return variants.score_band(self.history, ax)

    def sigmas(self, ax: Axes | Figure | None = None) -> Axes:
        """The inherited size of mutations."""
        return variants.mutation_sizes(self.history, ax)

    def genes(self, ax: Axes | Figure | None = None) -> Axes:
        """Hyper-parameters of the best variants, on the colours of their scores."""
        return variants.gene_map(self.history, ax)

    def lives(self, ax: Axes | Figure | None = None) -> Axes:
        """When every variant trained, sat the exam and stayed."""
        return variants.life_lines(self.history, ax)

    def staying(self, ax: Axes | Figure | None = None) -> Axes:
        """How long variants stay."""
        return variants.staying_curve(self.history, ax)

    def gains(self, ax: Axes | Figure | None = None) -> Axes:
        """What every change was worth."""
        return variants.change_gains(self.history, ax)

    def save(self, folder: str | Path, forms: Sequence[str] = ("png", "svg")) -> list[str]:
        """Draws all views that suit the run into a folder; returns the names of the files."""
        return files.save_figures(self.history, folder, forms, self.changes, self.timings)
