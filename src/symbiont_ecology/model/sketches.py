"""Gradient sketches: a short vector for what an answer would teach the bare host.

Two answers teach the same if their gradients point the same way, and contradict each other if they
point apart (TracIn, Pruthi et al. 2020, arXiv:2002.08484; LESS, Xia et al. 2024, arXiv:2402.04333).
The gradient is taken at the bare host, so a sketch never gets old, whatever organelles learn: the
same answer has the same sketch for everyone.

It is the gradient with respect to B of one fixed adapter (A random, B = 0). Every module counts
alike, and roots are taken, so that a few large numbers do not decide. A random projection (count
sketch, Charikar et al. 2002) makes it short; cosines stay what they are to within 1 ÷ √dimensions.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.base.flops import HostShape

DIMENSIONS, DIMENSIONS_IF_WIDE = 256, 2048
"""Of a sketch; of one of a wide host, where what answers teach has more directions."""
_SEED = 20_261_124


class Sketcher:
    """Makes sketches of gradients of one layout at one rank, ``(dimensions,)`` each."""

    def __init__(self, layout: AdapterLayout, rank: int, shape: HostShape) -> None:
        generator = np.random.default_rng(_SEED)
        self.adapter = AdapterWeights.random(layout, rank, 1.0, generator)
        self.dimensions = DIMENSIONS_IF_WIDE if shape.is_wide else DIMENSIONS
        blocks = list(layout.blocks(rank))
        first = len(blocks) * shape.sketched_from // shape.layers
        slices = [b for _, _, b, _, _ in blocks[first:]]
        self._places = np.concatenate([np.arange(b.start, b.stop) for b in slices])
        sizes = np.array([b.stop - b.start for b in slices])
        self._starts = np.cumsum(sizes) - sizes
        self._sizes = sizes
        count = len(self._places)
        self._bucket = generator.integers(0, self.dimensions, count)
        self._sign = generator.choice([-1.0, 1.0], count).astype(np.float32)

    def sketch(self, gradient: np.ndarray) -> np.ndarray:
        """The sketch of one gradient in the layout's order: a unit vector ``(dimensions,)``."""
        parts = gradient[self._places]
        sizes = np.abs(parts)
        lengths = np.sqrt(np.add.reduceat(sizes, self._starts))  # of the roots of a module's parts
        roots = np.copysign(np.sqrt(sizes, out=sizes), parts * self._sign)
        roots *= np.repeat(1 / np.maximum(lengths, 1e-12), self._sizes)
        vector = np.bincount(self._bucket, roots, self.dimensions)
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


@lru_cache(maxsize=4)
def sketcher_of(layout: AdapterLayout, rank: int, shape: HostShape) -> Sketcher:
    """The sketcher of a layout, which is made once."""
    return Sketcher(layout, rank, shape)
