"""Arithmetic on what adapters do, ΔW = scaling · B · A, and never on A and B apart.

An adapter has many factorings: (B·M, M⁻¹·A) does the same for every invertible M, its *gauge*. So
averages and sizes of factors mean nothing, and averages and sizes of ΔW do. Everything here is
computed in float64, and on the factors, except where elements of ΔW are looked at one by one
(``dense``, ``from_dense``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights, OptimizerState

SPARE = 1e-6
"""Of the strongest direction's length in a factor: what is no longer than that is rounding."""


def modules(
    adapters: Sequence[AdapterWeights],
) -> Iterator[tuple[str, list[tuple[np.ndarray, np.ndarray]]]]:
    """Yield, module after module, its name, and every adapter's A ``(r, d_in)`` and scaling · B
    ``(d_out, r)``.

    Raises:
        ValueError: the adapters were made for hosts of different layouts.
    """
    if len({adapter.layout for adapter in adapters}) > 1:
        raise ValueError(
            "expected adapters of one host, got several layouts: export them and attach them"
        )
    for parts in zip(*(adapter.factors() for adapter in adapters), strict=True):
        yield (
            parts[0][0],
            [
                (a.astype(np.float64), adapter.scaling * b.astype(np.float64))
                for adapter, (_, a, b) in zip(adapters, parts, strict=True)
            ],
        )


def combined(adapters: Sequence[AdapterWeights], share: float) -> AdapterWeights:
    """Return share · Σ ΔW, exactly: factors side by side, at the sum of the ranks."""
    factors = {}
    for name, parts in modules(adapters):
        factors[name] = (
            np.concatenate([a for a, _ in parts]),
            np.concatenate([share * b for _, b in parts], axis=1),
        )
    return AdapterWeights.from_factors(
        adapters[0].layout, sum(adapter.rank for adapter in adapters), 1.0, factors
    )


def truncated(adapter: AdapterWeights, rank: int) -> AdapterWeights:
    """Return the nearest adapter of that rank in every module (Eckart & Young 1936), balanced: AAᵀ
    = BᵀB, diagonal.

    Exact where ``rank`` is not below the rank that ΔW really has. Where ΔW has no direction left, B
    alone is zero. Beyond the adapter's own rank, or the width of a module, there is none to be had:
    A and B are zero there, and no gradient reaches them. ``grown`` adds rank that learns.
    """
    factors = {name: _balanced(*spectrum(a, b), rank) for name, [(a, b)] in modules([adapter])}
    return AdapterWeights.from_factors(adapter.layout, rank, 1.0, factors)


def shares(adapter: AdapterWeights) -> np.ndarray:
    """Return the part of ‖ΔW‖² that each direction carries, the strongest first, on average over
    modules, ``(rank,)``.

    Modules in which ΔW is zero do not count; all zero where it is zero everywhere.
    """
    parts = []
    for _, [(a, b)] in modules([adapter]):
        energy = np.square(spectrum(a, b)[1])
        if energy.any():
            idle = adapter.rank - len(energy)  # directions that a narrow module has no room for
            parts.append(np.pad(energy / energy.sum(), (0, idle)))
    return np.mean(parts, axis=0) if parts else np.zeros(adapter.rank)


def grown(adapter: AdapterWeights, rank: int, generator: np.random.Generator) -> AdapterWeights:
    """Return the same ΔW at a larger rank: new rows of A are drawn, and their columns of B are
    zero."""
    factors = {}
    for name, a, b in adapter.factors():
        rows = generator.standard_normal((rank - adapter.rank, a.shape[1]), dtype=np.float32)
        zeros = np.zeros((b.shape[0], rank - adapter.rank), dtype=np.float32)
        factors[name] = (
            np.concatenate([a, rows / np.sqrt(a.shape[1])]),
            np.concatenate([b, zeros], axis=1),
        )
    return AdapterWeights.from_factors(adapter.layout, rank, adapter.scaling, factors)


def grown_optimizer_state(
    optimizer_state: OptimizerState, adapter: AdapterWeights, rank: int
) -> OptimizerState:
    """Return Adam's moments for an adapter that has grown: zero for what is new."""

    def padded(moments: np.ndarray | None) -> np.ndarray | None:
        if moments is None:
            return None
        as_weights = AdapterWeights(adapter.layout, adapter.rank, 1.0, moments)
        parts = {name: (a, b) for name, a, b in as_weights.factors()}
        return AdapterWeights.from_factors(adapter.layout, rank, 1.0, parts).vector

    return replace(
        optimizer_state, first=padded(optimizer_state.first), second=padded(optimizer_state.second)
    )


def spectrum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular value decomposition of B·A from its factors,
    ``(U (d_out, k), S (k,), Vᵀ (k, d_in))``."""
    q_out, r_out = np.linalg.qr(b)
    q_in, r_in = np.linalg.qr(a.T)
    u, s, v = np.linalg.svd(r_out @ r_in.T, full_matrices=False)
    return q_out @ u, s, v @ q_in.T


def dense(adapters: Sequence[AdapterWeights]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield, module after module, its name and ΔW of all adapters, ``(adapters, d_out, d_in)``."""
    for name, parts in modules(adapters):
        yield name, np.stack([b @ a for a, b in parts])


def from_dense(
    layout: AdapterLayout, rank: int, deltas: Iterable[tuple[str, np.ndarray]]
) -> AdapterWeights:
    """Return the nearest adapter of that rank, balanced, to ΔW ``(d_out, d_in)`` of every module,
    one at a time; what is left over as in ``truncated``."""
    factors = {
        name: _balanced(*np.linalg.svd(delta, full_matrices=False), rank) for name, delta in deltas
    }
    return AdapterWeights.from_factors(layout, rank, 1.0, factors)


def _balanced(
    u: np.ndarray, s: np.ndarray, v: np.ndarray, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a and B of the first ``rank`` singular directions, each with half of their length.

    Where ΔW has none left, A has length 1 and B is zero: if both were, no gradient would ever reach
    them.
    """
    root = np.sqrt(s[:rank])
    is_spare = root <= SPARE * root.max(initial=0.0)
    return np.where(is_spare, 1.0, root)[:, None] * v[:rank], u[:, :rank] * np.where(
        is_spare, 0.0, root
    )
