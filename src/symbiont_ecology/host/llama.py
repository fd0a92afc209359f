"""A fused forward for Llama-like decoders: Qwen3, Qwen2, Llama, Mistral without sliding windows.

Small hosts spend most of their time between the matrix products, so: q, k and v (gate and up) are one
product when decoding; keys and values go into a cache allocated once; grouped heads are never repeated
when decoding; nothing here imports transformers, whose modules cost more to import than a short run.
Rows are padded on the right: a causal mask then hides the padding by itself, and all rows share one
table of rotary angles. Models: arXiv:2302.13971 (Llama), arXiv:2505.09388 (Qwen3); RoPE: arXiv:2104.09864.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.bank import Adapters, Factors, project, project_whole
from symbiont_ecology.host.decoder import pad_right
from symbiont_ecology.host.shape import HostShape

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
PREFILL_TOKENS = 2048
"""Prompt tokens per forward: more does not fill the matrix units better, and falls out of the cache."""

_SITES = (
    ("self_attn", ("q_proj", "k_proj", "v_proj")),
    ("self_attn", ("o_proj",)),
    ("mlp", ("gate_proj", "up_proj")),
    ("mlp", ("down_proj",)),
)


def is_supported(config: Mapping[str, Any]) -> bool:
    """Whether this ``config.json`` describes a model that this file computes exactly."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kinds = config.get("layer_types") or ["full_attention"]
    return (
        config.get("model_type") in MODEL_TYPES
        and config.get("hidden_act", "silu") == "silu"
        and rope.get("rope_type", rope.get("type", "default")) == "default"
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and not any(isinstance(value, dict) for value in rope.values())  # other angles in other layers
        and set(kinds) == {"full_attention"}
        and not (config.get("sliding_window") and config.get("use_sliding_window", True))
        and config.get("quantization_config") is None
    )


Sites = Sequence[Factors | None]
"""The factors of one layer's four sites."""


@dataclass(frozen=True)
class _Linear:
    """The base weights of one site: ``whole (Σ d_out, d_in)`` and its members as views of it."""

    whole: Tensor
    bias: Tensor | None
    parts: tuple[tuple[Tensor, Tensor | None], ...]


@dataclass(frozen=True)
class _Layer:
    attention_norm: Tensor
    feed_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    qkv: _Linear
    out: _Linear
    gate_up: _Linear
    down: _Linear


class LlamaDecoder:
    """Computes a Llama-like host from its tensors (see ``decoder.Decoder``).

    Raises:
        KeyError: a tensor that the config promises is missing.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.device, self.fan_in_fan_out = device, False
        self._weights: dict[str, Tensor] = {}
        self._source = tensors
        self.dtype = dtype
        self._eps = float(config.get("rms_norm_eps", 1e-6))
        self._layers = [self._layer(index) for index in range(int(config["num_hidden_layers"]))]
        self._embedding = self._take("model.embed_tokens.weight")
        self._norm = self._take("model.norm.weight")
        is_tied = config.get("tie_word_embeddings", False) or "lm_head.weight" not in tensors
        self._head = self._embedding if is_tied else self._take("lm_head.weight")
        self._source = {}
        self.sites = tuple(
            tuple(
                (f"model.layers.{index}.{block}.{name}", weight.shape[1], weight.shape[0])
                for name, (weight, _) in zip(names, linear.parts, strict=True)
            )
            for index, layer in enumerate(self._layers)
            for (block, names), linear in zip(
                _SITES, (layer.qkv, layer.out, layer.gate_up, layer.down), strict=True
            )
        )
        per_layer = sum(d_in * d_out for site in self.sites[: len(_SITES)] for _, d_in, d_out in site)
        self.shape = HostShape.from_config(
            config,
            linear_parameters=per_layer,
            parameters=sum(weight.numel() for weight in self._weights.values()),
        )
        rope = config.get("rope_parameters") or {}
        self._theta = float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
        self._tables: tuple[Tensor, Tensor] | None = None

    def weights(self) -> dict[str, Tensor]:
        """Every base weight by its Hugging Face name; fused ones as views."""
        return dict(self._weights)

    def start(self, rows: Sequence[np.ndarray], adapters: Adapters, room: int) -> tuple[Tensor, LlamaSession]:
        """Reads the prompts in chunks of tiles, each as wide as its own longest row."""
        lengths = np.array([len(row) for row in rows])
        session = LlamaSession(
            self, adapters, torch.from_numpy(lengths).to(self.device), int(lengths.max()), room
        )
        height = len(rows) // adapters.tiles
        per_chunk = max(1, PREFILL_TOKENS // (height * int(lengths.max())))
        last: list[Tensor] = []
        for low in range(0, adapters.tiles, per_chunk):
            high = min(low + per_chunk, adapters.tiles)
            chunk = slice(low * height, high * height)
            ids = pad_right(rows[chunk], self.device)
            ends = session.lengths[chunk, None] - 1
            last.append(self._forward(ids, adapters.part(low, high), session.cache[:, :, chunk], ends)[:, 0])
        return self._logits(torch.cat(last)), session

    def logits_at(self, ids: Tensor, wanted: Tensor, is_real: Tensor, adapters: Adapters) -> Tensor:
        """Logits at the wanted positions only: the head is the largest product of a small host."""
        return self._logits(self._forward(ids, adapters, None, wanted)[is_real])

    def hidden(self, ids: Tensor, adapters: Adapters) -> Tensor:
        """Last hidden states after the final norm."""
        return self._normed(self._forward(ids, adapters, None, None), self._norm)

    def embed(self, tokens: Tensor) -> Tensor:
        """Input embeddings of token ids."""
        return F.embedding(tokens, self._embedding)

    def rotary(self, positions: int) -> tuple[Tensor, Tensor]:
        """Tables ``(positions or more, head_dim)``: cosines, and sines whose first half is negated."""
        if self._tables is None or len(self._tables[0]) < positions:
            size = self.shape.head_dim
            # Not inference tensors: the tables outlive the call, and a learning step reads them too.
            with torch.inference_mode(False):
                span = torch.arange(0, size, 2, dtype=torch.float32) / size
                places = torch.arange(max(256, positions), dtype=torch.float32)
                angles = torch.outer(places, 1.0 / self._theta**span)
                cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([-angles.sin(), angles.sin()], -1)
                self._tables = cos.to(self.device, self.dtype), sin.to(self.device, self.dtype)
        return self._tables

    def decode(self, x: Tensor, angles: tuple[Tensor, Tensor], session: LlamaSession, end: int) -> Tensor:
        """One new token per row: ``x (rows, 1, hidden)`` in, logits ``(rows, vocab)`` out."""
        shape, rows = self.shape, x.shape[0]
        mask = None if session.mask is None else session.mask[..., :end]
        groups = shape.heads // shape.kv_heads
        sites = session.adapters.sites
        for index, layer in enumerate(self._layers):
            qkv_f, out_f, gate_up_f, down_f = sites[4 * index : 4 * index + 4]
            h = self._normed(x, layer.attention_norm)
            heads = _whole(h, layer.qkv, qkv_f).view(
                rows, 1, shape.heads + 2 * shape.kv_heads, shape.head_dim
            )
            q, k, v = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], dim=2)
            q, k = self._rotated(q, layer.q_norm, angles), self._rotated(k, layer.k_norm, angles)
            keys, values = session.cache[index, 0], session.cache[index, 1]
            keys[:, :, end - 1], values[:, :, end - 1] = k[:, 0], v[:, 0]
            o = F.scaled_dot_product_attention(
                q.reshape(rows, shape.kv_heads, groups, shape.head_dim),
                keys[:, :, :end],
                values[:, :, :end],
                attn_mask=mask,
            )
            x = x + _whole(o.reshape(rows, 1, -1), layer.out, out_f)
            h = _whole(self._normed(x, layer.feed_norm), layer.gate_up, gate_up_f)
            gate, up = h.chunk(2, dim=-1)
            x = x + _whole(F.silu(gate) * up, layer.down, down_f)
        return self._logits(x[:, 0])

    def _forward(
        self, ids: Tensor, adapters: Adapters, cache: Tensor | None, wanted: Tensor | None
    ) -> Tensor:
        """Hidden states of right-padded rows at the ``wanted (rows, few)`` positions, at all when None.

        Fills ``cache (layers, 2, rows, kv_heads, room, head_dim)`` when there is one. The last layer works
        for the wanted positions alone: a fifth of all products in a host of five layers.
        """
        cos, sin = self.rotary(ids.shape[1])
        angles = cos[: ids.shape[1], None], sin[: ids.shape[1], None]
        x = self.embed(ids)
        for index, layer in enumerate(self._layers):
            sites = adapters.sites[4 * index : 4 * index + 4]
            kept = None if cache is None else cache[index, :, :, :, : ids.shape[1]]
            if wanted is None or index < len(self._layers) - 1:
                x = self._block(layer, sites, x, angles, kept)
            else:
                x = self._last_block(layer, sites, x, kept, wanted)
        return x

    def _block(
        self, layer: _Layer, sites: Sites, x: Tensor, angles: tuple[Tensor, Tensor], kept: Tensor | None
    ) -> Tensor:
        """One layer at all positions: ``x (rows, time, hidden)`` to the same."""
        rows, time, heads = x.shape[0], x.shape[1], self.shape.heads
        h = self._normed(x, layer.attention_norm)
        q, k, v = (y.view(rows, time, -1, self.shape.head_dim) for y in project(h, layer.qkv.parts, sites[0]))
        q = self._rotated(q, layer.q_norm, angles).transpose(1, 2)
        k, v = self._rotated(k, layer.k_norm, angles).transpose(1, 2), v.transpose(1, 2)
        if kept is not None:
            kept[0], kept[1] = k, v
        o = F.scaled_dot_product_attention(q, _repeated(k, heads), _repeated(v, heads), is_causal=True)
        return self._after_attention(layer, sites, x, o.transpose(1, 2).reshape(rows, time, -1))

    def _last_block(
        self, layer: _Layer, sites: Sites, x: Tensor, kept: Tensor | None, wanted: Tensor
    ) -> Tensor:
        """One layer whose queries are the wanted positions alone: returns ``(rows, few, hidden)``."""
        shape, (rows, time, _), few = self.shape, x.shape, wanted.shape[1]
        cos, sin = self.rotary(time)
        h, qkv = self._normed(x, layer.attention_norm), sites[0]
        k, v = project(h, layer.qkv.parts[1:], None if qkv is None else qkv.members(1, 3))
        k = k.view(rows, time, -1, shape.head_dim)
        k = self._rotated(k, layer.k_norm, (cos[:time, None], sin[:time, None])).transpose(1, 2)
        v = v.view(rows, time, -1, shape.head_dim).transpose(1, 2)
        if kept is not None:
            kept[0], kept[1] = k, v
        row = torch.arange(rows, device=x.device)[:, None]
        (q,) = project(h[row, wanted], layer.qkv.parts[:1], None if qkv is None else qkv.members(0, 1))
        q = q.view(rows, few, -1, shape.head_dim)
        q = self._rotated(q, layer.q_norm, (cos[wanted, None], sin[wanted, None]))
        # Query heads that share a key head stand side by side, as if they were more positions.
        groups = shape.heads // shape.kv_heads
        q = q.view(rows, few, shape.kv_heads, groups, shape.head_dim).permute(0, 2, 3, 1, 4)
        sees = torch.arange(time, device=x.device) <= wanted[:, :, None]
        mask = torch.zeros(sees.shape, device=x.device, dtype=x.dtype).masked_fill_(
            ~sees, torch.finfo(x.dtype).min
        )
        o = F.scaled_dot_product_attention(
            q.reshape(rows, shape.kv_heads, groups * few, shape.head_dim),
            k,
            v,
            attn_mask=mask.repeat(1, groups, 1)[:, None],
        )
        o = o.view(rows, shape.kv_heads, groups, few, shape.head_dim).permute(0, 3, 1, 2, 4)
        return self._after_attention(layer, sites, x[row, wanted], o.reshape(rows, few, -1))

    def _after_attention(self, layer: _Layer, sites: Sites, x: Tensor, o: Tensor) -> Tensor:
        """Output projection and feed-forward with their residuals."""
        x = x + project(o, layer.out.parts, sites[1])[0]
        gate, up = project(self._normed(x, layer.feed_norm), layer.gate_up.parts, sites[2])
        return x + project(F.silu(gate) * up, layer.down.parts, sites[3])[0]

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self._eps)

    def _rotated(self, x: Tensor, norm: Tensor | None, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Heads ``(rows, time, heads, head_dim)`` normed (Qwen3) and turned by their positions."""
        if norm is not None:
            x = self._normed(x, norm)
        half = x.shape[-1] // 2
        return torch.addcmul(x * angles[0], torch.cat((x[..., half:], x[..., :half]), -1), angles[1])

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._normed(x, self._norm), self._head)

    def _layer(self, index: int) -> _Layer:
        stem = f"model.layers.{index}."
        linears = [self._linear([f"{stem}{block}.{name}" for name in names]) for block, names in _SITES]
        has_head_norms = f"{stem}self_attn.q_norm.weight" in self._source
        return _Layer(
            self._take(f"{stem}input_layernorm.weight"),
            self._take(f"{stem}post_attention_layernorm.weight"),
            self._take(f"{stem}self_attn.q_norm.weight") if has_head_norms else None,
            self._take(f"{stem}self_attn.k_norm.weight") if has_head_norms else None,
            *linears,
        )

    def _linear(self, names: Sequence[str]) -> _Linear:
        """Fuses the members of a site; what stays known by name are views, so no weight is held twice."""
        weights = [self._source[f"{name}.weight"].to(self.device, self.dtype) for name in names]
        biases = [self._source.get(f"{name}.bias") for name in names]
        whole = torch.cat(weights) if len(weights) > 1 else weights[0]
        found = [one.to(self.device, self.dtype) for one in biases if one is not None]
        if found and len(found) != len(names):
            raise KeyError(f"{names[0]}.bias")
        bias = torch.cat(found) if found else None
        sizes = [weight.shape[0] for weight in weights]
        bias_parts = torch.split(bias, sizes) if bias is not None else [None] * len(names)
        parts = tuple(zip(torch.split(whole, sizes), bias_parts, strict=True))
        for name, (weight, bias_part) in zip(names, parts, strict=True):
            self._weights[f"{name}.weight"] = weight
            if bias_part is not None:
                self._weights[f"{name}.bias"] = bias_part
        return _Linear(whole, bias, parts)

    def _take(self, name: str) -> Tensor:
        self._weights[name] = self._source[name].to(self.device, self.dtype)
        return self._weights[name]


class LlamaSession:
    """Half-written rows: one cache tensor ``(layers, 2, rows, kv_heads, room, head_dim)`` for all of them.

    Short prompts leave a gap before the first new token; the additive mask hides it.
    """

    def __init__(
        self, decoder: LlamaDecoder, adapters: Adapters, lengths: Tensor, longest: int, room: int
    ) -> None:
        shape = decoder.shape
        self._decoder, self.adapters, self.lengths = decoder, adapters, lengths
        self._longest, self._written = longest, 0
        # Zeros, not empty: masked positions still enter the product as 0 · value, and 0 · NaN is NaN.
        size = (shape.layers, 2, len(lengths), shape.kv_heads, longest + room, shape.head_dim)
        dtype = decoder.dtype
        self.cache = torch.zeros(size, device=decoder.device, dtype=dtype)
        self.mask: Tensor | None = None
        if bool((lengths < longest).any()):
            spots = torch.arange(longest + room, device=decoder.device)
            is_gap = (spots >= lengths[:, None]) & (spots < longest)
            mask = torch.zeros(is_gap.shape, device=decoder.device, dtype=dtype)
            self.mask = mask.masked_fill_(is_gap, torch.finfo(dtype).min)[:, None, None]

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token per row and returns the next logits."""
        cos, sin = self._decoder.rotary(self.cache.shape[4])
        positions = self.lengths + self._written
        angles = cos[positions, None, None], sin[positions, None, None]
        self._written += 1
        end = self._longest + self._written
        return self._decoder.decode(self._decoder.embed(tokens[:, None]), angles, self, end)

    def keep(self, rows: Tensor, adapters: Adapters) -> None:
        """Goes on with fewer rows."""
        self.adapters = adapters
        self.lengths = self.lengths[rows]
        self.cache = self.cache.index_select(2, rows)
        self.mask = None if self.mask is None else self.mask[rows]


def _whole(x: Tensor, linear: _Linear, factors: Factors | None) -> Tensor:
    """All members of a site side by side; falls back to separate products on wide hosts."""
    y = project_whole(x, linear.whole, linear.bias, factors)
    return torch.cat(project(x, linear.parts, factors), dim=-1) if y is None else y


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values ``(rows, kv_heads, time, head_dim)`` with one copy per query head."""
    rows, kv_heads, time, size = x.shape
    if kv_heads == heads:
        return x
    return (
        x[:, :, None].expand(rows, kv_heads, heads // kv_heads, time, size).reshape(rows, heads, time, size)
    )
