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

from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.model.architectures import Blueprint, ModelConfig, read_blueprint
from symbiont_ecology.model.backend.attention import RMSNorm
from symbiont_ecology.model.backend.lowrank import LowRankTerm, Shares, Site
from symbiont_ecology.model.backend.torch_backend import eight_bits
from symbiont_ecology.model.locating import expect

SITES = (
    ("self_attn", ("q_proj", "k_proj", "v_proj")),
    ("self_attn", ("o_proj",)),
    ("mlp", ("gate_proj", "up_proj")),
    ("mlp", ("down_proj",)),
)
"""The linear modules of a layer, grouped by what they read."""
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def weight_shapes(plan: Blueprint) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a Llama-like host by its Hugging Face name, tied ones
    once."""
    shape, architecture, hidden = plan.shape, plan.architecture, plan.shape.hidden
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    linears = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "gate_proj": (shape.feed_forward, hidden),
        "up_proj": (shape.feed_forward, hidden),
        "down_proj": (hidden, shape.feed_forward),
    }
    shapes: dict[str, tuple[int, ...]] = {
        _EMBEDDING: (shape.vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not plan.is_tied:
        shapes[_HEAD] = shapes[_EMBEDDING]
    for layer in range(shape.layers):
        stem = f"model.layers.{layer}."
        for (block, members), has_bias in zip(SITES, plan.biases, strict=True):
            for name in members:
                shapes[f"{stem}{block}.{name}.weight"] = linears[name]
                if has_bias:
                    shapes[f"{stem}{block}.{name}.bias"] = linears[name][:1]
        for norm in filter(None, architecture.norms):
            shapes[f"{stem}{norm}.weight"] = (hidden,)
        if architecture.has_head_norms:
            shapes |= {f"{stem}self_attn.{name}_norm.weight": (shape.head_dim,) for name in "qk"}
    return shapes


def _check_tensors(plan: Blueprint, tensors: Mapping[str, Tensor]) -> None:
    """Refuses tensors that are not what the config says: nothing behind them looks at sizes."""
    shapes = weight_shapes(plan)
    if _HEAD in tensors:  # of a host whose config ties it, too
        shapes[_HEAD] = shapes[_EMBEDDING]
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        expect(
            tensor is not None and tensor.shape == shape and tensor.is_floating_point(),
            f"tensor {name!r} of numbers {shape} as the host's config says, found "
            f"{'none' if tensor is None else f'{tensor.dtype} {tuple(tensor.shape)}'}: download "
            "the weights again",
        )


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
        if self.scales is not None:
            residual.add_(self.base(x))
        else:
            residual.addmm_(x, self.whole)
            if self.bias is not None:
                residual.add_(self.bias)
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
        ValueError: the config is not one that ``architectures.read_blueprint`` understands.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        plan = read_blueprint(config)
        if plan is None:
            raise ValueError(
                "expected a config that is understood here, got another: use transformers"
            )
        _check_tensors(plan, tensors)
        self.plan, self.named = plan, dict[str, Tensor]()
        self._source, self.device, self._is_int8 = tensors, device, dtype == torch.int8
        self.dtype = torch.float32 if self._is_int8 else dtype
        names = [
            [f"model.layers.{index}.{block}.{name}" for name in members]
            for index in range(len(plan.views))
            for block, members in SITES
        ]
        linears = [
            self._linear(members, has_bias)
            for members, has_bias in zip(names, plan.biases * len(plan.views), strict=True)
        ]
        self.sites: tuple[Site, ...] = tuple(
            tuple((name, *self.named[f"{name}.weight"].t().shape) for name in members)
            for members in names
        )
        per_layer = sum(
            d_in * d_out for site in self.sites[: len(SITES)] for _, d_in, d_out in site
        )
        shape = replace(plan.shape, linear_parameters=per_layer)
        self.layers = [
            self._layer(index, linears[4 * index : 4 * index + 4], shape)
            for index in range(len(plan.views))
        ]
        self.embedding = self._take(_EMBEDDING)
        self.norm = self._norm("model.norm")
        # As transformers does it: what the config ties is tied unless the file holds two different
        # weights.
        embedding = tensors[_EMBEDDING]
        head = tensors.get(_HEAD, embedding)
        is_tied = plan.is_tied and (head is embedding or torch.equal(head, embedding))
        self.head = self.embedding if is_tied else self._take(_HEAD)
        self.shape = replace(
            shape,
            parameters=sum(
                weight.numel() for name, weight in self.named.items() if name[-6:] != ".scale"
            ),
        )
        self._source = {}

    def _layer(self, index: int, linears: Sequence[FrozenLinear], shape: HostShape) -> Layer:
        plan, stem, head_norms = self.plan, f"model.layers.{index}.", None
        if plan.architecture.has_head_norms:
            q, k = (self._take(f"{stem}self_attn.{name}_norm.weight") for name in "qk")
            weight = torch.cat([q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)])
            head_norms = RMSNorm(weight, plan.eps, plan.architecture.norm_offset)
        before, after, feed, fed = (
            None if name is None else self._norm(f"{stem}{name}")
            for name in plan.architecture.norms
        )
        assert before is not None
        assert feed is not None
        qkv, out, gate_up, down = linears
        return Layer(
            before,
            feed,
            head_norms,
            qkv=qkv,
            out=replace(out, norm=after),
            gate_up=gate_up,
            down=replace(down, norm=fed),
        )

    def _linear(self, names: Sequence[str], has_bias: bool) -> FrozenLinear:
        """Fuses the members of a site."""
        weights = [self._source[f"{name}.weight"].to(self.device, self.dtype) for name in names]
        matrix = torch.cat(weights).t().contiguous()
        sizes, scales = [weight.shape[0] for weight in weights], None
        if self._is_int8:
            matrix, scales = eight_bits().quantized(matrix)
            for name, part in zip(names, torch.split(scales, sizes), strict=True):
                self.named[f"{name}.scale"] = part
        for name, part in zip(names, torch.split(matrix.t(), sizes), strict=True):
            self.named[f"{name}.weight"] = part
        if not has_bias:
            return FrozenLinear(matrix, None, scales=scales)
        biases = [self._source[f"{name}.bias"] for name in names]
        bias = torch.cat(biases).to(self.device, self.dtype)
        for name, part in zip(names, torch.split(bias, sizes), strict=True):
            self.named[f"{name}.bias"] = part
        return FrozenLinear(matrix, bias, scales=scales)

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(
            self._take(f"{name}.weight"), self.plan.eps, self.plan.architecture.norm_offset
        )

    def _take(self, name: str) -> Tensor:
        # A copy, since a view would keep the whole file in memory.
        self.named[name] = self._source[name].to(self.device, self.dtype, copy=True)
        return self.named[name]
