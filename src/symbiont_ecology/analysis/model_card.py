"""The model card of an adapter that goes to a hub: what was measured, on what, and what made it."""

from __future__ import annotations

from dataclasses import dataclass

from symbiont_ecology import __version__
from symbiont_ecology.analysis.page import render
from symbiont_ecology.evaluation.adapter_comparison import AdapterComparison


@dataclass(frozen=True)
class AdapterOrigin:
    """Where a published adapter comes from. Users of the run are counted and not named."""

    repository: str
    base_model: str
    organelle: str
    rank: int
    born: int
    operator: str
    parents: tuple[str, ...]
    seed: int
    generation: int
    users: int
    asked: str
    data: str


def publication_card(origin: AdapterOrigin, found: AdapterComparison) -> str:
    """The card in Markdown; every figure in it is of ``found``, and nothing in a name is markup."""
    return render("model_card.md.j2", origin=origin, found=found, version=__version__)
