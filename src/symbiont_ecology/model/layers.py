"""The weights of a Llama-like host as its fused forward wants them: the members of a site in one
matrix.

The members stay known by their Hugging Face names, as views: no weight is held twice. Matrices are
stored as ``(d_in, Σ d_out)``, which makes small products 5 % faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.architectures import Blueprint
from symbiont_ecology.model.backend.attention import RMSNorm
from symbiont_ecology.model.backend.lowrank import LowRankTerm, Shares, Site
from symbiont_ecology.model.backend.torch_backend import eight_bits

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class FrozenLinear:
    """The base weights of one site, ``whole (d_in, Σ d_out)``; its members are known by name as
    views.

    ``norm`` is of what is added to a residual (Gemma 3). With ``scales (Σ d_out,)`` the weights are
    of eight bits (``EightBits``).
    """

    whole: Tensor
    bias: Tensor | None
    norm: RMSNorm | None = None
    scales: Tensor | None = None

    def base(self, x: Tensor) -> Tensor:
        """Return tokens ``(tokens, d_in)`` to ``(tokens, Σ d_out)`` without adapters."""
        if self.scales is not None:
            y = eight_bits().product(x, self.whole, self.scales)
            return y if self.bias is None else y + self.bias
        return (
            torch.mm(x, self.whole) if self.bias is None else torch.addmm(self.bias, x, self.whole)
        )

    def __call__(self, x: Tensor, term: LowRankTerm | None, shares: Shares) -> Tensor:
        """Return the same with adapters."""
        y = self.base(x)
        return y if term is None else term.add_to(y, x, shares)

    def onto(
        self,
        residual: Tensor,
        x: Tensor,
        term: LowRankTerm | None,
        shares: Shares,
        normalize: Callable[[Tensor, RMSNorm], Tensor],
    ) -> Tensor:
        """Return ``residual`` plus the same, normed if there is a norm; in place where no gradient
        is wanted."""
        if self.norm is not None:
            return residual + normalize(self(x, term, shares), self.norm)
        if torch.is_grad_enabled():
            return residual + self(x, term, shares)
        if self.scales is None and self.bias is None:
            residual.addmm_(x, self.whole)
        else:
            residual.add_(self.base(x))
        return residual if term is None else term.add_to(residual, x, shares)


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    attention_norm: RMSNorm
    feed_norm: RMSNorm
    head_norms: RMSNorm | None  # of queries and keys (Qwen3), weights (heads + kv_heads, head_dim)
    qkv: FrozenLinear
    out: FrozenLinear
    gate_up: FrozenLinear
    down: FrozenLinear


class LlamaWeights:
    """A host's tensors, fused. ``named`` are all of them by Hugging Face name, tied ones once.

    With the dtype int8, linear weights are of eight bits and the rest in float32.

    Raises:
        HostError: a tensor that the config promises is missing, or is another one.
    """

    def __init__(
        self,
        plan: Blueprint,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.plan, self.named, self.device = plan, dict[str, Tensor](), device
        self._source, self._is_int8 = tensors, dtype == torch.int8
        self.dtype = torch.float32 if self._is_int8 else dtype
        hidden = plan.shape.hidden
        sites = list[Site]()
        linears = list[FrozenLinear]()
        for index in range(len(plan.views)):
            for (block, widths), has_bias in zip(_sites(plan.shape), plan.biases, strict=True):
                stem = f"model.layers.{index}.{block}."
                site = tuple((f"{stem}{name}", *size) for name, size in widths.items())
                sites.append(site)
                linears.append(self._linear(site, has_bias))
        self.sites = tuple(sites)
        per_layer = sum(d_in * d_out for site in sites[:4] for _, d_in, d_out in site)
        self.layers = [
            self._layer(index, linears[4 * index : 4 * index + 4])
            for index in range(len(plan.views))
        ]
        source = self._tensor(_EMBEDDING, plan.shape.vocab, hidden)
        self.embedding = self._take(_EMBEDDING, *source.shape)
        self.norm = self._norm("model.norm", hidden)
        # As transformers does it: what the config ties is tied unless the file holds two different
        # weights.
        head = tensors.get(_HEAD, source)
        is_tied = plan.is_tied and (head is source or torch.equal(head, source))
        self.head = self.embedding if is_tied else self._take(_HEAD, *source.shape)
        sizes = (weight.numel() for name, weight in self.named.items() if name[-6:] != ".scale")
        self.shape = replace(plan.shape, linear_parameters=per_layer, parameters=sum(sizes))
        self._source = {}

    def _layer(self, index: int, linears: Sequence[FrozenLinear]) -> Layer:
        plan = self.plan
        shape = self.plan.shape
        stem = f"model.layers.{index}."
        head_norms = None
        if plan.architecture.has_head_norms:
            names = (f"{stem}self_attn.{name}_norm.weight" for name in "qk")
            q, k = (self._take(name, shape.head_dim) for name in names)
            weight = torch.cat([q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)])
            head_norms = RMSNorm(weight, plan.eps, plan.architecture.norm_offset)
        before, after, feed, fed = (
            None if name is None else self._norm(f"{stem}{name}", shape.hidden)
            for name in plan.architecture.norms
        )
        assert before is not None
        assert feed is not None
        qkv, out, gate_up, down = linears
        out, down = replace(out, norm=after), replace(down, norm=fed)
        return Layer(before, feed, head_norms, qkv=qkv, out=out, gate_up=gate_up, down=down)

    def _linear(self, site: Site, has_bias: bool) -> FrozenLinear:
        """Fuses the members of a site."""
        parts = [self._tensor(f"{name}.weight", d_out, d_in) for name, d_in, d_out in site]
        matrix = torch.cat([part.to(self.device, self.dtype) for part in parts]).t().contiguous()
        bias = scales = None
        if self._is_int8:
            matrix, scales = eight_bits().quantized(matrix)
            self._name(site, "scale", scales)
        self._name(site, "weight", matrix.t())
        if has_bias:
            biases = [self._tensor(f"{name}.bias", d_out) for name, _, d_out in site]
            bias = torch.cat(biases).to(self.device, self.dtype)
            self._name(site, "bias", bias)
        return FrozenLinear(matrix, bias, scales=scales)

    def _name(self, site: Site, kind: str, whole: Tensor) -> None:
        """Let the members of a site be known as views of what is fused."""
        parts = torch.split(whole, [d_out for _, _, d_out in site])
        self.named |= {
            f"{name}.{kind}": part for (name, _, _), part in zip(site, parts, strict=True)
        }

    def _norm(self, name: str, size: int) -> RMSNorm:
        weight = self._take(f"{name}.weight", size)
        return RMSNorm(weight, self.plan.eps, self.plan.architecture.norm_offset)

    def _take(self, name: str, *shape: int) -> Tensor:
        # A copy, since a view would keep the whole file in memory.
        self.named[name] = self._tensor(name, *shape).to(self.device, self.dtype, copy=True)
        return self.named[name]

    def _tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of the file if it is what the config says: nothing behind it looks at
        sizes."""
        tensor = self._source.get(name)
        found = "none" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        if tensor is None or tensor.shape != shape or not tensor.is_floating_point():
            raise HostError(
                f"expected tensor {name!r} of numbers {shape} as the host's config says, found "
                f"{found}: download the weights again"
            )
        return tensor


def _sites(shape: HostShape) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    """Return the linear modules of a layer with their sizes, grouped by what they read."""
    hidden, feed, queries = shape.hidden, shape.feed_forward, shape.heads * shape.head_dim
    read, gated = (hidden, shape.kv_heads * shape.head_dim), (hidden, feed)
    return [
        ("self_attn", {"q_proj": (hidden, queries), "k_proj": read, "v_proj": read}),
        ("self_attn", {"o_proj": (queries, hidden)}),
        ("mlp", {"gate_proj": gated, "up_proj": gated}),
        ("mlp", {"down_proj": (feed, hidden)}),
    ]
