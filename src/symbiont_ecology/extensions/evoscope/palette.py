"""Colours of figures, the same as on the page of Evoscope."""

from __future__ import annotations

VIEW_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7",
    "#332288", "#999933", "#882255", "#117733", "#aa4499", "#661100",
)  # fmt: skip
"""Okabe & Ito (2008), then Tol's "muted": told apart by people who are colour-blind."""
OTHERS_COLOUR = "#b4b9bd"
"""Of organelles that have no colour of their own, and of the bare host."""
MAIN_COLOUR = "#17805c"
"""Of the arm that is compared with all others."""
ARM_COLOURS = ("#8c8c8c", *VIEW_COLOURS[:2], *VIEW_COLOURS[3:9])
"""Of the other arms, one after another: grey, and what is not green."""
