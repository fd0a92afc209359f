"""Eligibility traces: what a three-factor rule needs to know of an answer until its reward is
there.

While an answer is written, what A makes of its inputs is perturbed: ``h = A x + ξ``, ξ ~ N(0, σ²).
The trace of A is Σ ξ ⊗ x ÷ σ² over the answer's tokens, and reward times trace is, in the mean, the
gradient of the expected reward: node perturbation (Werfel, Xie & Seung 2005; Fiete & Seung 2006).
It takes forward passes only, and a reward that says no more than right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from symbiont_ecology.weights.adam import adam_direction
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights, OptimizerState

B_SCALE = 4.0
"""How much what A says weighs at first: at this, the learning rates that suit a backward pass suit
traces too."""


@dataclass(frozen=True, eq=False)
class Traces:
    """Of every row of a batch, token by token and module by module.

    ``modules[name]`` is what the module read, ``(rows, steps, d_in)``, and how its ``A x`` was
    perturbed, ``(rows, steps, rank)``; both are zero where a row had ended. ``std`` is σ.
    """

    layout: AdapterLayout
    std: float
    modules: Mapping[str, tuple[np.ndarray, np.ndarray]]

    def __getitem__(self, row: int) -> Trace:
        return Trace(self, row)

    def credit(
        self, rows: Sequence[int], rewards: Sequence[float | np.ndarray], rank: int
    ) -> np.ndarray:
        """Σ reward · trace of rows for an adapter of that rank: ``(layout.size(rank),)``, zero for
        B.

        A reward is one number for all tokens of a row, or one for each of its first tokens.
        """
        vector = np.zeros(self.layout.size(rank), dtype=np.float32)
        steps = max(noise.shape[1] for _, noise in self.modules.values())
        scale = np.zeros((len(rows), steps, 1), dtype=np.float32)
        for of_row, reward in zip(scale, rewards, strict=True):
            of_row[: np.size(reward) if np.ndim(reward) else None, 0] = reward
        scale /= np.float32(self.std**2)
        for name, a, _, d_in, _ in self.layout.blocks(rank):
            inputs, noise = (values[list(rows)] for values in self.modules[name])
            scaled = (noise[..., :rank] * scale).reshape(-1, rank)
            vector[a] = (scaled.T @ inputs.reshape(-1, d_in)).reshape(-1)
        return vector


@dataclass(frozen=True)
class Trace:
    """One row of the traces of a batch."""

    traces: Traces
    row: int


def ascended(
    weights: AdapterWeights, optimizer_state: OptimizerState, credit: np.ndarray, rate: float
) -> tuple[AdapterWeights, OptimizerState]:
    """One Adam step of size ``rate`` up a credit ``(layout.size(rank),)``."""
    direction, after = adam_direction(credit, optimizer_state)
    vector = weights.vector + rate * direction
    return replace(weights, vector=vector.astype(np.float32)), after


def has_zero_b(weights: AdapterWeights) -> bool:
    """Whether a column of B is zero, as all are at first: what its row of A says then goes
    unheard."""
    return not all(b.any(axis=0).all() for _, _, b in weights.factors())


def with_random_b(weights: AdapterWeights, generator: np.random.Generator) -> AdapterWeights:
    """The same function with an A to learn: where B was 0, A is 0 and B is drawn from
    N(0, ``B_SCALE``² ÷ (rank · modules)).

    So noise of one size makes one size of noise in all that the modules write, whatever rank and
    number.
    """
    vector, scale = (
        weights.vector.copy(),
        B_SCALE / np.sqrt(weights.rank * len(weights.layout.modules)),
    )
    for _, a, b, d_in, d_out in weights.layout.blocks(weights.rank):
        rows, columns = vector[a].reshape(-1, d_in), vector[b].reshape(-1, d_out)
        has_zero_b = ~columns.any(axis=1)
        rows[has_zero_b] = 0.0
        columns[has_zero_b] = scale * generator.standard_normal((has_zero_b.sum(), d_out))
    return replace(weights, vector=vector)
