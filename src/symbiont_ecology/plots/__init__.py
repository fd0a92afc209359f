"""A run as figures. Every view takes a ``History`` and axes to draw on, and returns the axes.

    from symbiont_ecology import plots
    from symbiont_ecology.history.history import read_history

    plots.lineages(read_history(Path("artifacts/demo-1")))

Without axes a view makes a figure of its own. ``run.plot`` has the same views as methods.

``through_time``  answers and population, energy, ranks, trials
``descent``       lineages, Muller plot
``places``        who serves whom, heat maps of cells and users, the archive
``files``         all of them as PNG and SVG
``run_plots``     the views of one run, as methods
``palette``       the colours
``drawing``       what views share
"""

from symbiont_ecology.plots.descent import lineages, muller
from symbiont_ecology.plots.files import save_figures
from symbiont_ecology.plots.places import archive, cells, servers
from symbiont_ecology.plots.run_plots import RunPlots
from symbiont_ecology.plots.through_time import curves, energy, ranks, trials

__all__ = [
    "RunPlots",
    "archive",
    "cells",
    "curves",
    "energy",
    "lineages",
    "muller",
    "ranks",
    "save_figures",
    "servers",
    "trials",
]
