"""The weights of a Llama-like host as its fused forward wants them: the members of a site in one
matrix.

The members stay known by their Hugging Face names, as views: no weight is held twice. Matrices are
stored as ``(d_in, Σ d_out)``, which makes small products 5 % faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.economics import HostShape
from symbiont_ecology.host import native
from symbiont_ecology.host.architectures import Blueprint, View, read_blueprint
from symbiont_ecology.host.bank import Site
from symbiont_ecology.host.lowrank import Factors, Shares, add_low_rank
from symbiont_ecology.host.native import Pointers
from symbiont_ecology.host.slot_tiles import Tiling

Activation = Callable[[Tensor], Tensor]

SITES = (
    ("self_attn", ("q_proj", "k_proj", "v_proj")),
    ("self_attn", ("o_proj",)),
    ("mlp", ("gate_proj", "up_proj")),
    ("mlp", ("down_proj",)),
)
"""The linear modules of a layer, grouped by what they read."""


@dataclass(frozen=True)
class FrozenLinear:
    """The base weights of one site, ``whole (d_in, Σ d_out)``; its members are known by name as
    views.

    ``norm`` is of what is added to a residual (Gemma 3).
    """

    whole: Tensor
    bias: Tensor | None
    norm: Norm | None = None

    def __call__(self, x: Tensor, factors: Factors | Pointers | None, shares: Shares) -> Tensor:
        """Tokens ``(tokens, d_in)`` to ``(tokens, Σ d_out)`` with adapters."""
        y = torch.mm(x, self.whole) if self.bias is None else torch.addmm(self.bias, x, self.whole)
        return y if factors is None else add_low_rank(x, y, factors, shares)

    def gated(
        self, x: Tensor, factors: Factors | Pointers | None, shares: Shares, activation: Activation
    ) -> Tensor:
        """``activation(gate) · up`` (arXiv:2002.05202), where gate and up are what this makes of
        ``x``."""
        is_silu = activation is F.silu
        if is_silu and isinstance(factors, Pointers):
            assert not isinstance(shares, Tiling)
            return native.add_low_rank(x, self(x, None, shares), factors, shares, is_gated=True)
        y = self(x, factors, shares)
        if is_silu and native.takes(y):
            return native.gate(y)
        gate, up = y.chunk(2, dim=-1)
        gate = activation(gate)
        return gate * up if torch.is_grad_enabled() else gate.mul_(up)

    def onto(
        self, residual: Tensor, x: Tensor, factors: Factors | Pointers | None, shares: Shares
    ) -> Tensor:
        """``residual`` plus the same; in place where no gradient is wanted."""
        if self.norm is not None:
            return residual + self.norm(self(x, factors, shares))
        if torch.is_grad_enabled():
            return residual + self(x, factors, shares)
        residual.addmm_(x, self.whole)
        if self.bias is not None:
            residual.add_(self.bias)
        return residual if factors is None else add_low_rank(x, residual, factors, shares)


class Norm:
    """Root mean square norm over the last dimension (arXiv:1910.07467), in few operations on a CPU.

    Computes in the precision of its weight and returns that of its input.
    """

    def __init__(self, weight: Tensor, plan: Blueprint) -> None:
        if plan.norm_offset:  # in single precision: half precision would round 1 + weight
            weight = weight.float() + plan.norm_offset
        size, eps = weight.shape[-1], plan.eps
        self.weight, self.eps = weight, eps
        self._scaled = weight * size**0.5
        self._floor = weight.new_tensor((size * eps) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        """``x (…, width)``, or ``(…, heads, width)`` with a weight for every head."""
        if x.dim() == 2 and native.takes(x):
            return native.normalize(x, self)
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            normed = F.rms_norm(x.to(self.weight.dtype), x.shape[-1:], None, self.eps)
            return (normed * self.weight).to(x.dtype)
        # x / sqrt(|x|² / n + eps), with the square root of n in the weight.
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)
        return torch.div(x, size).mul_(self._scaled)


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    attention_norm: Norm
    feed_norm: Norm
    head_norms: Norm | None  # of queries and keys (Qwen3), weights (heads + kv_heads, head_dim)
    qkv: FrozenLinear
    out: FrozenLinear
    gate_up: FrozenLinear
    down: FrozenLinear
    view: int  # number of what its attention looks at, among the host's


class LlamaWeights:
    """A host's tensors, fused. ``named`` are all of them by Hugging Face name, tied ones once.

    Raises:
        KeyError: a tensor that the config promises is missing.
        ValueError: the config is not one that ``families.read_blueprint`` understands.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        plan = read_blueprint(config)
        if plan is None:
            raise ValueError(
                "expected a config that is understood here, got another: use transformers"
            )
        self.plan, self.named = plan, dict[str, Tensor]()
        self._source, self.device, self.dtype = tensors, device, dtype
        sites = [
            [f"model.layers.{index}.{block}.{name}" for name in members]
            for index in range(len(plan.views))
            for block, members in SITES
        ]
        linears = [
            self._linear(*one) for one in zip(sites, plan.biases * len(plan.views), strict=True)
        ]
        self.sites: tuple[Site, ...] = tuple(
            tuple(self._module(name) for name in site) for site in sites
        )
        per_layer = sum(
            d_in * d_out for site in self.sites[: len(SITES)] for _, d_in, d_out in site
        )
        shape = HostShape.from_config(plan.config, linear_parameters=per_layer, parameters=0)
        self.views: tuple[View, ...] = tuple(dict.fromkeys(plan.views))
        self.layers = [
            self._layer(index, linears[4 * index : 4 * index + 4], shape)
            for index in range(len(plan.views))
        ]
        self.embedding = self._take("model.embed_tokens.weight")
        self.norm = Norm(self._take("model.norm.weight"), plan)
        # As transformers does it: what the config ties is tied unless the file holds two different
        # weights.
        head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        is_tied = plan.is_tied and torch.equal(head, tensors["model.embed_tokens.weight"])
        self.head = self.embedding if is_tied else self._take("lm_head.weight")
        self.shape = replace(
            shape, parameters=sum(weight.numel() for weight in self.named.values())
        )
        self._source = {}

    def _module(self, name: str) -> tuple[str, int, int]:
        d_out, d_in = self.named[f"{name}.weight"].shape
        return name, d_in, d_out

    def _layer(self, index: int, linears: Sequence[FrozenLinear], shape: HostShape) -> Layer:
        plan, stem, head_norms = self.plan, f"model.layers.{index}.", None
        if plan.has_head_norms:
            q, k = (self._take(f"{stem}self_attn.{name}_norm.weight") for name in "qk")
            head_norms = Norm(
                torch.cat([q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)]), plan
            )
        before, after, feed, fed = (
            None if name is None else Norm(self._take(f"{stem}{name}.weight"), plan)
            for name in plan.norms
        )
        assert before is not None
        assert feed is not None
        qkv, out, gate_up, down = linears
        out, down = replace(out, norm=after), replace(down, norm=fed)
        return Layer(
            before, feed, head_norms, qkv, out, gate_up, down, self.views.index(plan.views[index])
        )

    def _linear(self, names: Sequence[str], has_bias: bool) -> FrozenLinear:
        """Fuses the members of a site."""
        weights = [self._source[f"{name}.weight"].to(self.device, self.dtype) for name in names]
        whole = torch.cat(weights).t().contiguous()
        sizes = [weight.shape[0] for weight in weights]
        for name, part in zip(names, torch.split(whole.t(), sizes), strict=True):
            self.named[f"{name}.weight"] = part
        if not has_bias:
            return FrozenLinear(whole, None)
        bias = torch.cat([self._source[f"{name}.bias"] for name in names]).to(
            self.device, self.dtype
        )
        for name, part in zip(names, torch.split(bias, sizes), strict=True):
            self.named[f"{name}.bias"] = part
        return FrozenLinear(whole, bias)

    def _take(self, name: str) -> Tensor:
        self.named[name] = self._source[name].to(self.device, self.dtype)
        return self.named[name]
