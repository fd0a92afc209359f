"""A fused forward for Llama-like decoders: Llama, Mistral, Qwen2, Qwen3, Gemma 3.

Small hosts spend most of their time between the matrix products, so: q, k and v (gate and up) are
one product; prompts are read as one packed line of tokens, without padding; keys and values go into
a cache allocated once; grouped heads are never repeated; residuals are added by the products
themselves; nothing here imports transformers, whose modules cost more to import than a short run.
What sets one model apart from another is data: ``families`` reads it from the config and names the
papers. RoPE: arXiv:2104.09864.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from symbiont_ecology.host import native
from symbiont_ecology.host.architectures import read_blueprint
from symbiont_ecology.host.bank import Adapters, SlotBank
from symbiont_ecology.host.caches import Cache, PaddedCache, RaggedCache, Sight, turn
from symbiont_ecology.host.dropout import Dropout
from symbiont_ecology.host.layers import LlamaWeights
from symbiont_ecology.host.lowrank import Shares
from symbiont_ecology.host.packing import Packing, Text, chunks, pack_texts, taken
from symbiont_ecology.host.rectangles import Rectangles
from symbiont_ecology.host.sliding_window import Masks, masks_of


def is_supported(config: Mapping[str, Any]) -> bool:
    """Whether this ``config.json`` describes a model that this file computes exactly."""
    return read_blueprint(config) is not None


@dataclass(frozen=True)
class _Reading:
    """Packed tokens on their way through the layers. ``cache`` is filled when there is one."""

    packing: Packing
    adapters: Adapters
    sights: Sequence[Sight]  # for each layer
    cache: Tensor | None  # (layers, 2, rows, kv_heads, room, head_dim)
    is_everywhere: bool  # whether the last layer works for all tokens, and not for the ends alone

    @cached_property
    def stretches(self) -> np.ndarray:
        """The line as compiled attention takes it."""
        return self.packing.stretches()

    @cached_property
    def end_stretches(self) -> np.ndarray:
        """The same where the ends alone look."""
        return self.packing.stretches(is_ends=True)

    @cached_property
    def rectangles(self) -> Rectangles:
        """The line as torch's attention takes it."""
        return Rectangles.of(self.packing)

    @cached_property
    def masks(self) -> dict[int | None, list[Masks]]:
        """For each window, of each group."""
        dtype = self.sights[0].table.dtype
        windows = {sight.window for sight in self.sights}
        return {
            window: [masks_of(group, dtype, window) for group in self.rectangles.groups]
            for window in windows
        }


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
        cache = self._new_cache(np.array([len(prompt) for prompt in prompts]), room)
        last: list[Tensor] = []
        texts = [Text(prompt) for prompt in prompts]
        for piece in chunks(texts, slots, max_tokens):
            rows = slice(piece[0], piece[-1] + 1)  # they come sorted, so pieces are consecutive
            packing = pack_texts(texts[rows], slots[rows], self.device)
            x = self._read(packing, bank.gather(packing.owners), cache.states[:, :, rows])
            last.append(x[packing.predicts])
        return self._logits(torch.cat(last)), LlamaSession(self, cache)

    def logits(
        self, packing: Packing, adapters: Adapters, dropout: Dropout | None = None
    ) -> Tensor:
        """Logits ``(targets, vocab)`` where an answer's tokens, and what follows them, are
        predicted."""
        states = self._read(packing, adapters.dropping(dropout), None)
        return self._logits(taken(states, packing.predicts))

    def features(self, packing: Packing, adapters: Adapters) -> Tensor:
        """Last hidden states, after the final norm, averaged over each prompt:
        ``(rows, hidden)``."""
        states = self._host.norm(self._read(packing, adapters, None, is_everywhere=True))
        means = [
            states[start : start + len(text.prompt)].mean(0)
            for start, text in zip(packing.prompt_starts, packing.texts, strict=True)
        ]
        return torch.stack(means)

    def decode(self, tokens: Tensor, cache: Cache, adapters: Adapters, shares: Shares) -> Tensor:
        """One more token per row; logits ``(rows, vocab)``."""
        x = self._embedded(tokens)
        for index, layer in enumerate(self._host.layers):
            qkv, out, gate_up, down = adapters.sites[4 * index : 4 * index + 4]
            heads = layer.qkv(layer.attention_norm(x), qkv, shares).view(
                x.shape[0], -1, self.shape.head_dim
            )
            x = layer.out.onto(x, cache.attend(index, heads), out, shares)
            fed = layer.gate_up.gated(layer.feed_norm(x), gate_up, shares, self._activation)
            x = layer.down.onto(x, fed, down, shares)
        return self._logits(x)

    def _turns(self, end: int) -> Tensor:
        """For each view, cosines and sines (first half negated),
        ``(views, 2, end or more, head_dim)``."""
        if self._tables is None or self._tables.shape[2] < end:
            # Not inference tensors: the tables outlive the call, and a learning step reads them
            # too.
            with torch.inference_mode(False):
                places = torch.arange(max(256, end), dtype=torch.float32)
                speeds = [view.rope.speeds(self.shape.head_dim) for view in self._host.views]
                turns = torch.stack([torch.outer(places, one) for one in speeds])
                cos, sin = turns.cos(), turns.sin()
                tables = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1)
                self._tables = tables.to(self.device, self.dtype)
        return self._tables

    def _new_cache(self, lengths: np.ndarray, room: int) -> Cache:
        """For prompts of these lengths and ``room`` tokens to come."""
        shape, end = self.shape, int(lengths.max()) + room
        size = shape.layers, 2, len(lengths), shape.kv_heads, end, shape.head_dim
        states = torch.empty(size, device=self.device, dtype=self.dtype)
        kind = RaggedCache if native.is_usable(self.device, self.dtype) else PaddedCache
        return kind(self._sights(end), states, lengths)

    def _sights(self, end: int) -> list[Sight]:
        """How each layer looks at up to ``end`` tokens."""
        tables, views = self._turns(end), self._host.views
        return [
            Sight(
                layer.head_norms,
                views[layer.view].window,
                tables[layer.view],
                self._attention_scale,
            )
            for layer in self._host.layers
        ]

    def _read(
        self,
        packing: Packing,
        adapters: Adapters,
        cache: Tensor | None,
        *,
        is_everywhere: bool = False,
    ) -> Tensor:
        """Hidden states before the final norm, ``(ends, hidden)`` or of all tokens.

        The last layer works for the ends alone: a sixth of all products in a host of five layers.
        """
        reading = _Reading(packing, adapters, self._sights(packing.longest), cache, is_everywhere)
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
        """One layer: ``x (tokens, hidden)`` to the same, or to ``(ends, hidden)`` in the last
        one."""
        layer, counts = self._host.layers[index], reading.packing.counts
        qkv, out, gate_up, down = reading.adapters.sites[4 * index : 4 * index + 4]
        is_last = index == len(self._host.layers) - 1 and not reading.is_everywhere
        heads = layer.qkv(layer.attention_norm(x), qkv, counts).view(
            x.shape[0], -1, self.shape.head_dim
        )
        o = self._attended(heads, index, reading, is_last)
        if is_last:
            x, counts = taken(x, reading.packing.ends), reading.packing.end_counts
        x = layer.out.onto(x, o, out, counts)
        fed = layer.gate_up.gated(layer.feed_norm(x), gate_up, counts, self._activation)
        return layer.down.onto(x, fed, down, counts)

    def _attended(self, heads: Tensor, index: int, reading: _Reading, is_last: bool) -> Tensor:
        """What packed tokens see: ``(tokens, all heads, head_dim)`` to
        ``(tokens or ends, width)``."""
        packing, sight = reading.packing, reading.sights[index]
        cache = None if reading.cache is None else reading.cache[index]
        both = self.shape.heads + self.shape.kv_heads
        turned, values = (
            turn(heads[:, :both], sight.norm, sight.table, packing.positions),
            heads[:, both:],
        )
        if native.takes(heads):
            if cache is not None:
                native.fill(cache, turned, values, packing.prompt_starts, packing.prompt_lengths)
            return native.look(
                turned, values, reading.end_stretches if is_last else reading.stretches, sight
            )
        return self._attended_in_rectangles(
            turned.flatten(1), values.flatten(1), cache, reading, sight, is_last
        )

    def _attended_in_rectangles(
        self,
        turned: Tensor,
        values: Tensor,
        cache: Tensor | None,
        reading: _Reading,
        sight: Sight,
        is_last: bool,
    ) -> Tensor:
        """The same with torch's attention."""
        seen = []
        for group, masks in zip(
            reading.rectangles.groups, reading.masks[sight.window], strict=True
        ):
            q, k, v = self._split(turned, values, group.prompts)
            if cache is not None:
                for target, found in zip(cache, (k, v), strict=True):
                    target[group.rows, :, : k.shape[2]] = group.by_row(found)
            if is_last:
                q = q[torch.arange(len(q), device=q.device), :, group.lengths - 1, None]
            seen.append(_attention(q, k, v, masks.ends if is_last else masks.prompts, sight.scale))
            if group.has_answers:
                q, *own = self._split(turned, values, group.answers)
                k, v = (
                    torch.cat([group.by_row(old), new], 2)
                    for old, new in zip((k, v), own, strict=True)
                )
                seen.append(_attention(q, k, v, masks.answers, sight.scale))
        rectangles = reading.rectangles
        return rectangles.packed_ends(seen) if is_last else rectangles.packed(seen)

    def _split(
        self, turned: Tensor, values: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values ``(rows, heads, time, head_dim)`` at ``places (rows, time)`` of the
        line."""
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

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._host.norm(x), self._host.head)


class LlamaSession:
    """Half-written rows and the cache of what they have read."""

    def __init__(self, decoder: LlamaDecoder, cache: Cache) -> None:
        self._decoder, self.cache = decoder, cache

    def step(self, tokens: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        """Appends one token per row and returns the next logits."""
        logits = self._decoder.decode(tokens, self.cache, adapters, shares)
        self.cache.advance()
        return logits

    def keep(self, rows: Tensor) -> None:
        """Goes on with fewer rows."""
        self.cache.keep(rows)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal, or under a mask: ``(rows, heads, time, head_dim)`` to
    ``(rows, time, heads · head_dim)``."""
    seen = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
    )
    return seen.transpose(1, 2).flatten(2)
