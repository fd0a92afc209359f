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
    def layers(self) -> int:
        """Decoder layers."""
        ...

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        ...

    @property
    def heads(self) -> int:
        """Query heads."""
        ...

    @property
    def kv_heads(self) -> int:
        """Key and value heads; fewer than ``heads`` when queries share them."""
        ...

    @property
    def head_dim(self) -> int:
        """Numbers per head."""
        ...

    @property
    def vocab(self) -> int:
        """Rows of the output head."""
        ...

    @property
    def linear_parameters(self) -> int:
        """Weights of all linear modules in one decoder layer."""
        ...
