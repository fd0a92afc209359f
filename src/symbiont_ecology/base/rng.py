"""Randomness has a name: one generator per (seed, generation, purpose, key).

A draw depends on its name alone: not on the order of calls, not on neighbours in a batch, not on
where a run was resumed. So there is no generator state to save.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Draw:
    """Named random streams of one generation: ``draw("mutate", child)`` is a fresh generator."""

    seed: int
    generation: int = 0

    def key(self, *name: object) -> int:
        """Return a 64-bit integer that stands for the name."""
        text = "\x1f".join(map(str, (self.seed, self.generation, *name)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    def __call__(self, *name: object) -> np.random.Generator:
        """Return the generator of that name, always from its beginning."""
        return np.random.Generator(np.random.PCG64(self.key(*name)))
