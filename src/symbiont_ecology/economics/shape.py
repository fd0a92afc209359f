"""The sizes of a host, as far as the cost of running it depends on them."""

from __future__ import annotations

from typing import Protocol


class HostShape(Protocol):
    """A decoder-only transformer in seven numbers; ``symbiont_ecology.host.shape.HostShape`` is one.

    ``linear_parameters`` counts the weights of all linear modules in ONE decoder layer (attention
    projections and MLP; biases, norms and embeddings cost next to nothing). ``heads × head_dim`` need not
    be ``hidden``; ``kv_heads`` is smaller than ``heads`` under grouped-query attention.
    """

    @property
    def layers(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def linear_parameters(self) -> int: ...
