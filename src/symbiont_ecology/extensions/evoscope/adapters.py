"""Facts of a page that come from weights: norm and spectrum of every ΔW that is still in the run's
folder."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.adapters.deltas import modules, spectrum
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology import EcologyState


def adapter_measures(state: EcologyState, folder: Path) -> dict[OrganelleId, dict[str, Any]]:
    """Return measures of the living and of those whose elites are kept; what cannot be read is left
    out."""
    refs = {elite.organelle_id: elite.weights for elite in state.archive.elites.values()}
    refs |= {organelle.id: organelle.genome.weights for organelle in state.population.values()}
    store, measures = BlobStore(folder / "blobs"), dict[OrganelleId, dict[str, Any]]()
    for organelle_id, ref in refs.items():
        try:
            measures[organelle_id] = _measures(store, ref)
        except RunError:  # the run went on meanwhile, and dropped it
            continue
    return measures


def _measures(store: BlobStore, ref: BlobRef) -> dict[str, Any]:
    """Return rank, numbers in A and B, ‖ΔW‖ (Frobenius) over all modules and by the last part of a
    module's name, and singular values as the root of their mean square over modules."""
    weights = store.weights(ref)
    squares, count = np.zeros(weights.rank), 0
    by_module = defaultdict[str, float](float)
    for name, [(a, b)] in modules([weights]):
        module_squares = spectrum(a, b)[1] ** 2
        squares[: len(module_squares)] += module_squares  # a narrow module has fewer
        count += 1
        by_module[name.rpartition(".")[2]] += float(module_squares.sum())
    return {
        "rank": weights.rank,
        "parameters": len(weights.vector),
        "norm": float(np.sqrt(squares.sum())),
        "spectrum": np.sqrt(squares / max(count, 1)).tolist(),
        "by_module": {name: float(np.sqrt(square)) for name, square in by_module.items()},
    }
