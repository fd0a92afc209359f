"""A run as figures. Every view takes a ``History`` and axes to draw on, and returns the axes.

    from symbiont_ecology import plots
    from symbiont_ecology.history.history import read_history

    plots.lineages(read_history(Path("artifacts/demo-1")))

Without axes a view makes a figure of its own. ``run.plot`` has the same views as methods.

``ascents``       evolution strategies: rewards, lengths, looks, steps; times of phases
``variants``      selection by exams: scores, lives, genes, what changes were worth
``through_time``  answers and population, energy, ranks, trials
``descent``       lineages, Muller plot
``places``        who serves whom, heat maps of cells and users, the archive
``files``         all of them as PNG and SVG
``run_plots``     the views of one run, as methods
``palette``       the colours
``drawing``       what views share
"""

from symbiont_ecology.plots.ascents import (
    answer_lengths,
    centre_looks,
    centre_steps,
    phase_times,
    reward_band,
)
from symbiont_ecology.plots.descent import lineages, muller
from symbiont_ecology.plots.files import save_figures
from symbiont_ecology.plots.places import archive, cells, servers
from symbiont_ecology.plots.run_plots import RunPlots
from symbiont_ecology.plots.through_time import curves, energy, ranks, trials
from symbiont_ecology.plots.variants import (
    change_gains,
    gene_map,
    life_lines,
    mutation_sizes,
    score_band,
    staying_curve,
)

__all__ = [
    "RunPlots",
    "answer_lengths",
    "archive",
    "cells",
    "centre_looks",
    "centre_steps",
    "change_gains",
    "curves",
    "energy",
    "gene_map",
    "life_lines",
    "lineages",
    "muller",
    "mutation_sizes",
    "phase_times",
    "ranks",
    "reward_band",
    "save_figures",
    "score_band",
    "servers",
    "staying_curve",
    "trials",
]
