"""Eligibility traces: what a three-factor rule needs to know of an answer until its reward is there.

While an answer is written, what A makes of its inputs is perturbed: ``h = A x + ξ``, ξ ~ N(0, σ²). The
trace of A is Σ ξ ⊗ x ÷ σ² over the answer's tokens, and reward times trace is, in the mean, the gradient of
the expected reward: node perturbation (Werfel, Xie & Seung 2005; Fiete & Seung 2006). It takes forward
passes only, and a reward that says no more than right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from symbiont_ecology.weights.adapter import AdapterLayout


@dataclass(frozen=True)
class Traces:
    """Of every row of a batch, token by token and module by module.

    ``modules[name]`` is what the module read, ``(rows, steps, d_in)``, and how its ``A x`` was perturbed,
    ``(rows, steps, rank)``; both are zero where a row had ended. ``std`` is σ.
    """

    layout: AdapterLayout
    std: float
    modules: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def credit(self, rows: Sequence[int], rewards: Sequence[float], rank: int) -> np.ndarray:
        """Σ reward · trace of rows for an adapter of that rank: ``(layout.size(rank),)``, zero for B."""
        vector = np.zeros(self.layout.size(rank), dtype=np.float32)
        scale = np.asarray(rewards, dtype=np.float32)[:, None, None] / np.float32(self.std**2)
        for name, a, _, d_in, _ in self.layout.blocks(rank):
            read, noise = (values[list(rows)] for values in self.modules[name])
            pushed = (noise[..., :rank] * scale).reshape(-1, rank)
            vector[a] = (pushed.T @ read.reshape(-1, d_in)).reshape(-1)
        return vector
