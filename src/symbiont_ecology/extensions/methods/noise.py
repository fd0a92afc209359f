"""Noise on an adapter, told by a seed: what evolution strategies try, and go along.

A member of a population of evolution strategies is the centre with noise on it. The noise is a
function of its seed, so nothing else of a member is ever stored (Salimans et al. 2017,
arXiv:1703.03864), and a step is made of seeds and what their members earned.

Its size is ‖change of ΔW‖ ÷ ‖W‖, the same in all modules of the host, whatever their scales. It is
on B along the rows of a frozen A. Noise on A and B at once has a mean gradient of exactly zero
where B is zero, since ΔW is even in the sign of both: nobody could start there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights, Norms


@dataclass(frozen=True)
class Noise:
    """Noise of one seed on an adapter.

    ``size`` is that of the change of every module, relative to its base weights; a negative one is
    the mirror image (antithetic sampling).
    """

    seed: int
    size: float

    def __str__(self) -> str:
        return f"{self.seed} {self.size}"

    def of(self, centre: AdapterWeights, norms: Norms) -> AdapterWeights:
        """Return the perturbed adapter."""
        noise = noise_on_b(self.seed, centre.rank, centre.layout)
        vector = centre.vector.copy()
        for name, piece, scale in _scales_of_b(centre, norms):
            vector[piece] += np.float32(self.size * scale) * noise[name]
        return replace(centre, vector=vector)


@lru_cache(maxsize=1)  # mirror images come one after the other
def noise_on_b(seed: int, rank: int, layout: AdapterLayout) -> dict[str, np.ndarray]:
    """Draw standard normal numbers for Bᵀ of every module, ``(rank · d_out,)``."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return {
        name: generator.standard_normal(rank * d_out, dtype=np.float32)
        for name, _, d_out in layout.modules
    }


def along_b(
    centre: AdapterWeights, direction: np.ndarray, size: float, norms: Norms
) -> AdapterWeights:
    """Move the centre by ``size`` along a direction of B, in units of its noise:
    ``(layout.size(rank),)``, of which the parts of A are not looked at."""
    vector = centre.vector.copy()
    for _, piece, scale in _scales_of_b(centre, norms):
        vector[piece] += np.float32(size * scale) * direction[piece]
    return replace(centre, vector=vector)


def mean_of_b(shares: Iterable[tuple[int, float]], centre: AdapterWeights) -> np.ndarray:
    """Return Σ share · noise of seeds, in the layout of the centre, zero for A:
    ``(layout.size(rank),)``."""
    total = np.zeros_like(centre.vector)
    for seed, share in shares:
        noise = noise_on_b(seed, centre.rank, centre.layout)
        for name, _, b, _, _ in centre.layout.blocks(centre.rank):
            total[b] += np.float32(share) * noise[name]
    return total


def _scales_of_b(centre: AdapterWeights, norms: Norms) -> Iterable[tuple[str, slice, float]]:
    """Yield for every module its name, where Bᵀ is, and the noise of each number that makes
    ‖scaling · noise · A‖ = ‖W‖ in the mean."""
    for name, a, b, _, d_out in centre.layout.blocks(centre.rank):
        length = abs(centre.scaling) * float(np.linalg.norm(centre.vector[a])) * np.sqrt(d_out)
        yield name, b, norms[name] / length if length else 0.0
