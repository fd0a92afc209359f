"""The ΔW of those whose weights are still in the run's folder: its norm and its spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.errors import RunError
from symbiont_ecology.types import BlobRef, OrganelleId
from symbiont_ecology.weights.blobs import BlobStore
from symbiont_ecology.weights.deltas import modules, singular_values


@dataclass(frozen=True)
class Body:
    """An adapter, measured.

    ``norm`` is ‖ΔW‖ (Frobenius) over all modules. ``spectrum`` are singular values, falling, as the
    root of their mean square over modules. ``by_module`` is the norm by the last part of a module's
    name, such as ``q_proj``. ``parameters`` counts those of A and B.
    """

    rank: int
    parameters: int
    norm: float
    spectrum: tuple[float, ...]
    by_module: dict[str, float]


def bodies_of(state: EcologyState, folder: Path) -> dict[OrganelleId, Body]:
    """The bodies of the living and of those whose elites are kept. What cannot be read is left
    out."""
    refs = {elite.organelle_id: elite.weights for elite in state.archive.elites.values()}
    refs |= {organelle.id: organelle.genome.weights for organelle in state.population.values()}
    store, bodies = BlobStore(folder / "blobs"), dict[OrganelleId, Body]()
    for organelle_id, ref in refs.items():
        try:
            bodies[organelle_id] = body_of(store, ref)
        except RunError:  # the run went on meanwhile, and dropped it
            continue
    return bodies


def body_of(store: BlobStore, ref: BlobRef) -> Body:
    """The body with these weights.

    Raises:
        RunError: they are missing or damaged.
    """
    weights = store.weights(ref)
    squares, by_module = np.zeros(weights.rank), dict[str, float]()
    count = 0
    for name, [(a, b)] in modules([weights]):
        module_squares = singular_values(a, b) ** 2
        squares += module_squares
        last = name.rpartition(".")[2]
        by_module[last] = by_module.get(last, 0.0) + float(module_squares.sum())
        count += 1
    return Body(
        rank=weights.rank,
        parameters=len(weights.vector),
        norm=float(np.sqrt(squares.sum())),
        spectrum=tuple(np.sqrt(squares / max(count, 1)).tolist()),
        by_module={name: float(np.sqrt(square)) for name, square in by_module.items()},
    )
