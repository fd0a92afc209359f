"""The attention of a layer: its norm and rotary embedding, and the attention on a packed line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.model.packing import Packing


class RMSNorm:
    """Root mean square norm over the last dimension (arXiv:1910.07467), in few operations on a CPU.

    It multiplies by ``offset`` + weight. It computes in the precision of its weight and returns
    that of its input.
    """

    def __init__(self, weight: Tensor, eps: float, offset: float = 0.0) -> None:
        if offset:  # in single precision: half precision would round 1 + weight
            weight = weight.float() + offset
        self.weight, self.eps = weight, eps
        self._scaled = weight * weight.shape[-1] ** 0.5
        self._floor = weight.new_tensor((weight.shape[-1] * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        """``x (…, width)``, or ``(…, heads, width)`` with a weight for every head."""
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            normed = F.rms_norm(x.to(self.weight.dtype), x.shape[-1:], None, self.eps)
            return (normed * self.weight).to(x.dtype)
        # x / sqrt(|x|² / n + eps), with the square root of n in the weight.
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)
        return torch.div(x, size).mul_(self._scaled)


@dataclass(frozen=True)
class AttentionSpec:
    """What the attention of one layer is made of.

    ``norm`` is of queries and keys, if they are normed (Qwen3), ``window`` how many tokens are seen
    (None: all). ``table (2, positions, head_dim)`` are cosines and sines of positions, the first
    half of the latter negated. Scores are multiplied by ``scale``.
    """

    norm: RMSNorm | None
    window: int | None
    table: Tensor
    scale: float
    kv_heads: int


@dataclass(frozen=True)
class PackedAttention(ABC):
    """Attention on a packed line. Keys and values of the prompts go into ``states``, those of a
    cache, if they are given. In the last layer the ends alone look.
    ``kept (layers, 2, places, kv_heads, head_dim)`` are those of the places that the packing keeps.
    """

    packing: Packing
    specs: Sequence[AttentionSpec]
    states: Tensor | None
    kept: Tensor | None = None

    def is_narrow(self, layer: int) -> bool:
        """Whether the ends alone look in this layer."""
        return layer == len(self.specs) - 1

    def behind_kept(self, layer: int, rotated: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, and values, ``(tokens, heads, head_dim)`` each, behind those that are
        kept; there, queries are anything."""
        if self.kept is None:
            return rotated, values
        keys, kept_values = self.kept[layer]
        count, kv_heads = keys.shape[:2]
        heads = rotated.new_empty(count + len(rotated), *rotated.shape[1:])
        heads[:count, -kv_heads:], heads[count:] = keys, rotated
        return heads, torch.cat([kept_values, values])

    @abstractmethod
    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """What tokens see in a layer, ``(tokens or ends, all query heads · head_dim)``; ``heads``
        as in ``Cache``."""


def apply_rotary(x: Tensor, spec: AttentionSpec, positions: Tensor) -> Tensor:
    """Heads ``(tokens, heads, head_dim)`` normed (Qwen3) and rotated by their positions
    ``(tokens,)`` (arXiv:2104.09864)."""
    cosines, sines = spec.table.index_select(1, positions)[:, :, None]
    if spec.norm is not None:
        x = spec.norm(x)
    half = x.shape[-1] // 2
    return torch.addcmul(x * cosines, torch.cat((x[..., half:], x[..., :half]), -1), sines)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal, or under a mask: ``(rows, heads, time, head_dim)`` to
    ``(rows, time, heads · head_dim)``."""
    output = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2).flatten(2)
