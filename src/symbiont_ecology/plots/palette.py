"""The colours of all views, the same as on the page of Evoscope."""

from __future__ import annotations

from collections import Counter

from symbiont_ecology.history.history import History
from symbiont_ecology.types import OrganelleId

VIEW_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7",
    "#332288", "#999933", "#882255", "#44aa99", "#aa4499", "#b8a04a",
)  # fmt: skip
"""Okabe & Ito (2008), then Tol's "muted": told apart by people who are colour-blind."""
OTHERS_COLOUR = "#b4b9bd"
"""Of organelles that have no colour of their own, and of the bare host."""
HEAT = "cividis"
"""The colour map of heat maps (Nuñez et al. 2018)."""


def colours_of(history: History) -> dict[OrganelleId, str]:
    """A colour for each of those that answered most; all others are grey."""
    asked = Counter[OrganelleId]()
    for act in history.acts:
        if act.id in history.phylogeny.taxa:
            asked[act.id] += act.asked
    busiest = [who for who, _ in asked.most_common(len(VIEW_COLOURS))]
    return dict(zip(busiest, VIEW_COLOURS, strict=False))
