"""The size of a host, as far as the cost of running it depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostShape:
    """A decoder-only transformer in seven numbers.

    ``layer_parameters`` counts the weights of all linear modules in one decoder layer (attention
    projections and MLP; biases, norms and embeddings cost next to nothing). ``heads × head_dim`` need not
    be ``hidden``; ``kv_heads`` is smaller than ``heads`` under grouped-query attention.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    layer_parameters: int
