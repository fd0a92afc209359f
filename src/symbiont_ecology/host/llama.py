"""A fused forward for Llama-like decoders: Llama, Mistral, Qwen2, Qwen3, Gemma 3.

Small hosts spend most of their time between the matrix products, so: q, k and v (gate and up) are one
product; prompts are read as one packed line of tokens, without padding; keys and values go into a cache
allocated once; grouped heads are never repeated; residuals are added by the products themselves; nothing
here imports transformers, whose modules cost more to import than a short run. What sets one model apart
from another is data: ``families`` reads it from the config and names the papers. RoPE: arXiv:2104.09864.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from symbiont_ecology.host.bank import Adapters, SlotBank
from symbiont_ecology.host.dropout import Dropout
from symbiont_ecology.host.families import View, read_blueprint
from symbiont_ecology.host.layers import LlamaWeights, Norm
from symbiont_ecology.host.packing import Group, Packing, Text, chunks, pack, taken
from symbiont_ecology.host.tiles import Tiling
from symbiont_ecology.host.windows import Masks, masks_of, windowed


def is_supported(config: Mapping[str, Any]) -> bool:
    """Whether this ``config.json`` describes a model that this file computes exactly."""
    return read_blueprint(config) is not None


@dataclass(frozen=True)
class _Reading:
    """Packed tokens on their way through the layers. ``cache`` is filled when there is one."""

    packing: Packing
    adapters: Adapters
    angles: Sequence[tuple[Tensor, Tensor]]  # cosines and sines (tokens, 1, head_dim), for each view
    masks: Sequence[Sequence[Masks]]  # for each view, of each group
    cache: Tensor | None  # (layers, 2, rows, kv_heads, room, head_dim)
    is_everywhere: bool  # whether the last layer works for all tokens, and not for the ends alone


class LlamaDecoder:
    """Computes a Llama-like host from its weights (see ``decoder.Decoder``)."""

    def __init__(self, host: LlamaWeights, *, is_checkpointing: bool = False) -> None:
        self._host, self._is_checkpointing = host, is_checkpointing
        self.device, self.dtype, self.fan_in_fan_out = host.device, host.dtype, False
        self.sites, self.shape, plan = host.sites, host.shape, host.plan
        self._activation = plan.activation
        # Rounded as the weights are: half precision makes 55.5 of 55.43.
        self._embedding_scale = torch.tensor(plan.embedding_scale, dtype=host.dtype).item()
        self._attention_scale = (plan.query_scalar or self.shape.head_dim) ** -0.5
        self._tables: Tensor | None = None  # (views, 2, positions, head_dim)

    def weights(self) -> dict[str, Tensor]:
        """Every base weight by its Hugging Face name; fused ones as views."""
        return dict(self._host.named)

    def start(
        self,
        prompts: Sequence[np.ndarray],
        slots: Sequence[int],
        bank: SlotBank,
        room: int,
        max_tokens: int,
    ) -> tuple[Tensor, LlamaSession]:
        """Reads the prompts; what rows of one slot share is read once."""
        session = LlamaSession(self, np.array([len(prompt) for prompt in prompts]), room)
        last: list[Tensor] = []
        texts = [Text(prompt) for prompt in prompts]
        for piece in chunks(texts, slots, max_tokens):
            rows = slice(piece[0], piece[-1] + 1)  # they come sorted, so pieces are consecutive
            packing = pack(texts[rows], slots[rows], self.device)
            x = self._read(packing, bank.gather(packing.owners), session.cache[:, :, rows])
            last.append(x[packing.predicts])
        return self._logits(torch.cat(last)), session

    def logits(self, packing: Packing, adapters: Adapters, dropout: Dropout | None = None) -> Tensor:
        """Logits ``(targets, vocab)`` where an answer's tokens, and what follows them, are predicted."""
        states = self._read(packing, adapters.dropping(dropout), None)
        return self._logits(taken(states, packing.predicts))

    def features(self, packing: Packing, adapters: Adapters) -> Tensor:
        """Last hidden states, after the final norm, averaged over each prompt: ``(rows, hidden)``."""
        states = self._host.norm(self._read(packing, adapters, None, is_everywhere=True))
        means = [
            states[start : start + len(text.prompt)].mean(0)
            for start, text in zip(packing.prompt_starts, packing.texts, strict=True)
        ]
        return torch.stack(means)

    def angles(self, positions: Tensor, end: int) -> list[tuple[Tensor, Tensor]]:
        """For each view, cosines and sines (first half negated), ``(tokens, 1, head_dim)``."""
        if self._tables is None or self._tables.shape[2] < end:
            # Not inference tensors: the tables outlive the call, and a learning step reads them too.
            with torch.inference_mode(False):
                places = torch.arange(max(256, end), dtype=torch.float32)
                speeds = [view.rope.speeds(self.shape.head_dim) for view in self._host.views]
                turns = torch.stack([torch.outer(places, one) for one in speeds])
                cos, sin = turns.cos(), turns.sin()
                tables = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1)
                self._tables = tables.to(self.device, self.dtype)
        found = self._tables.index_select(2, positions)[:, :, :, None]
        return [(one[0], one[1]) for one in found.unbind()]

    def decode(
        self,
        tokens: Tensor,
        positions: Tensor,
        session: LlamaSession,
        end: int,
        adapters: Adapters,
        tiling: Tiling,
    ) -> Tensor:
        """One more token per row, the last of ``end`` places in the cache; logits ``(rows, vocab)``."""
        shape, rows = self.shape, len(tokens)
        both, size, groups = shape.heads + shape.kv_heads, shape.head_dim, shape.heads // shape.kv_heads
        angles = self.angles(positions, end)
        masks = session.masks(self._host.views, end)
        x = self._embedded(tokens)
        for index, layer in enumerate(self._host.layers):
            qkv, out, gate_up, down = adapters.sites[4 * index : 4 * index + 4]
            heads = layer.qkv(layer.attention_norm(x), qkv, tiling).view(rows, -1, size)
            turned = _turned(heads[:, :both], layer.head_norms, angles[layer.view])
            keys, values = session.cache[index, 0], session.cache[index, 1]
            keys[:, :, end - 1], values[:, :, end - 1] = turned[:, shape.heads :], heads[:, both:]
            # Query heads that share a key head are more rows of one small product.
            q = turned[:, : shape.heads].reshape(-1, groups, size)
            k, v = keys.flatten(0, 1)[:, :end], values.flatten(0, 1)[:, :end]
            scores = torch.baddbmm(masks[layer.view], q, k.transpose(1, 2), alpha=self._attention_scale)
            weights = scores.softmax(-1, dtype=torch.float32).to(self.dtype)
            x = layer.out.onto(x, torch.bmm(weights, v).view(rows, -1), out, tiling)
            x = layer.down.onto(
                x, self._gated(layer.gate_up(layer.feed_norm(x), gate_up, tiling)), down, tiling
            )
        return self._logits(x)

    def _read(
        self, packing: Packing, adapters: Adapters, cache: Tensor | None, *, is_everywhere: bool = False
    ) -> Tensor:
        """Hidden states before the final norm, ``(ends, hidden)`` or of all tokens.

        The last layer works for the ends alone: a sixth of all products in a host of five layers.
        """
        reading = _Reading(
            packing,
            adapters,
            self.angles(packing.positions, packing.longest),
            [
                [masks_of(group, self.dtype, view.window) for group in packing.groups]
                for view in self._host.views
            ],
            cache,
            is_everywhere,
        )
        x = self._embedded(packing.ids)
        is_learning = torch.is_grad_enabled()
        if is_learning:
            x.requires_grad_()  # what adapters learn hangs on their inputs' gradients
        for index in range(len(self._host.layers)):
            if is_learning and self._is_checkpointing:
                x = checkpoint(self._block, index, x, reading, use_reentrant=False)
            else:
                x = self._block(index, x, reading)
        return x

    def _block(self, index: int, x: Tensor, reading: _Reading) -> Tensor:
        """One layer: ``x (tokens, hidden)`` to the same, or to ``(ends, hidden)`` in the last one."""
        layer, counts = self._host.layers[index], reading.packing.counts
        qkv, out, gate_up, down = reading.adapters.sites[4 * index : 4 * index + 4]
        is_last = index == len(self._host.layers) - 1 and not reading.is_everywhere
        heads = layer.qkv(layer.attention_norm(x), qkv, counts).view(len(x), -1, self.shape.head_dim)
        o = self._attended(heads, index, reading, is_last)
        if is_last:
            x, counts = taken(x, reading.packing.ends), reading.packing.end_counts
        x = layer.out.onto(x, o, out, counts)
        return layer.down.onto(
            x, self._gated(layer.gate_up(layer.feed_norm(x), gate_up, counts)), down, counts
        )

    def _attended(self, heads: Tensor, index: int, reading: _Reading, is_last: bool) -> Tensor:
        """What packed tokens see: ``(tokens, all heads, head_dim)`` to ``(tokens or ends, width)``."""
        packing, both = reading.packing, self.shape.heads + self.shape.kv_heads
        layer, scale = self._host.layers[index], self._attention_scale
        turned = _turned(heads[:, :both], layer.head_norms, reading.angles[layer.view]).flatten(1)
        values, seen = heads[:, both:].flatten(1), []
        for group, masks in zip(packing.groups, reading.masks[layer.view], strict=True):
            q, k, v = self._split(turned, values, group.prompts)
            if reading.cache is not None:
                _fill(reading.cache[index], group, k, v)
            if is_last:
                q = q[torch.arange(len(q), device=q.device), :, group.lengths - 1, None]
            seen.append(_attention(q, k, v, masks.ends if is_last else masks.prompts, scale))
            if group.has_answers:
                q, *own = self._split(turned, values, group.answers)
                k, v = (
                    torch.cat([group.by_row(past), one], 2) for past, one in zip((k, v), own, strict=True)
                )
                seen.append(_attention(q, k, v, masks.answers, scale))
        return packing.packed_ends(seen) if is_last else packing.packed(seen)

    def _split(self, turned: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values ``(rows, heads, time, head_dim)`` at ``places (rows, time)`` of the line."""
        rectangle = places.shape
        q, k = torch.split(
            taken(turned, places).view(*rectangle, -1, self.shape.head_dim),
            [self.shape.heads, self.shape.kv_heads],
            2,
        )
        v = taken(values, places).view(*rectangle, -1, self.shape.head_dim)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _embedded(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self._host.embedding)
        return x if self._embedding_scale == 1.0 else x * self._embedding_scale

    def _gated(self, x: Tensor) -> Tensor:
        """``activation(gate) · up`` of gate and up side by side (arXiv:2002.05202)."""
        gate, up = x.chunk(2, dim=-1)
        gate = self._activation(gate)
        return gate * up if torch.is_grad_enabled() else gate.mul_(up)

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._host.norm(x), self._host.head)


class LlamaSession:
    """Half-written rows: one cache tensor ``(layers, 2, rows, kv_heads, room, head_dim)`` for all of them.

    Short prompts leave a gap before the first new token; the additive mask hides it.
    """

    def __init__(self, decoder: LlamaDecoder, lengths: np.ndarray, room: int) -> None:
        shape, device, dtype = decoder.shape, decoder.device, decoder.dtype
        self._decoder = decoder
        self._lengths = torch.from_numpy(lengths).to(device)
        self.longest, self._written = int(lengths.max()), 0
        spots = torch.arange(self.longest + room, device=device)
        is_gap = (spots >= self._lengths[:, None]) & (spots < self.longest)
        mask = torch.zeros(is_gap.shape, device=device, dtype=dtype).masked_fill_(
            is_gap, torch.finfo(dtype).min
        )
        self._mask = mask.repeat_interleave(shape.kv_heads, dim=0)[:, None]
        size = (shape.layers, 2, len(lengths), shape.kv_heads, self.longest + room, shape.head_dim)
        self.cache = torch.empty(size, device=device, dtype=dtype)
        # Not left as they are: masked places enter the product as 0 · value, and 0 · NaN is NaN.
        self.cache[..., : self.longest, :] = 0

    def masks(self, views: Sequence[View], end: int) -> list[Tensor]:
        """What the newest tokens see of the first ``end`` places, for each view."""
        mask = self._mask[:, :, :end]
        return [windowed(mask, view.window, self._lengths, self.longest) for view in views]

    def step(self, tokens: Tensor, adapters: Adapters, tiling: Tiling) -> Tensor:
        """Appends one token per row and returns the next logits."""
        positions = self._lengths + self._written
        self._written += 1
        return self._decoder.decode(tokens, positions, self, self.longest + self._written, adapters, tiling)

    def keep(self, rows: Tensor) -> None:
        """Goes on with fewer rows."""
        heads = self._decoder.shape.kv_heads
        self._lengths = self._lengths[rows]
        self._mask = self._mask.view(-1, heads, *self._mask.shape[1:])[rows].flatten(0, 1)
        self.cache = self.cache.index_select(2, rows)


def _turned(x: Tensor, norm: Norm | None, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Heads ``(tokens, heads, head_dim)`` normed (Qwen3) and turned by their positions."""
    if norm is not None:
        x = norm(x)
    half = x.shape[-1] // 2
    return torch.addcmul(x * angles[0], torch.cat((x[..., half:], x[..., :half]), -1), angles[1])


def _fill(cache: Tensor, group: Group, k: Tensor, v: Tensor) -> None:
    """Puts keys and values of a group's prompts into ``cache (2, rows, kv_heads, room, head_dim)``."""
    for target, found in zip(cache, (k, v), strict=True):
        target[group.rows, :, : found.shape[2]] = group.by_row(found)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal, or under a mask: ``(rows, heads, time, head_dim)`` to ``(rows, time, heads · head_dim)``."""
    seen = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )
    return seen.transpose(1, 2).flatten(2)
