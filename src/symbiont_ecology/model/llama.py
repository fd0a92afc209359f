"""A fused forward for Llama-like decoders: Llama, Mistral, Qwen2, Qwen3, Gemma 3.

Small hosts spend most of their time between the matrix products, so: q, k and v (gate and up) are
one product; prompts are read as one packed line of tokens, without padding; keys and values go into
a cache allocated once; grouped heads are never repeated; residuals are added by the products
themselves; nothing here imports transformers, whose modules cost more to import than a short run.
What sets one model apart from another is data: ``architectures`` reads it from the config and names
the papers. What is not a large product is left to a ``backend``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.model.architectures import Rope
from symbiont_ecology.model.backend.attention import AttentionSpec
from symbiont_ecology.model.backend.lowrank import Adapters, Shares, dropping
from symbiont_ecology.model.backend.torch_backend import (
    Cache,
    MixedCache,
    TorchBackend,
    backend_for,
)
from symbiont_ecology.model.budget import if_memory_lasts
from symbiont_ecology.model.decoder import Prefill, Session
from symbiont_ecology.model.dropout import Dropout
from symbiont_ecology.model.layers import LlamaWeights
from symbiont_ecology.model.packing import Packing, Text, any_shared, least_shared, packings, taken

MAX_MIXED_TOKENS = 512
"""Tokens of prompts that are read in the pass of the rows at work: the cache's attention takes one
token at a time, and from some 600 on that costs more on SmolLM2 than a pass of their own."""


@dataclass(frozen=True)
class _Forward:
    """Parts that tokens meet on their way through the layers.

    ``attend`` gives what they see in a layer. The tokens at ``ends`` alone, which come in shares
    of their own, go on after the last layer's attention, which gives them alone; all do where there
    are none.
    """

    backend: TorchBackend
    adapters: Adapters
    shares: Shares
    attend: Callable[[int, Tensor], Tensor]
    ends: tuple[Tensor, Shares] | None = None


class LlamaDecoder:
    """Computes a Llama-like host from its weights (see ``decoder.Decoder``)."""

    def __init__(self, host: LlamaWeights) -> None:
        self._host = host
        self.device, self.dtype, self.fan_in_fan_out = host.device, host.dtype, False
        self.sites = host.sites
        self.shape = host.shape
        plan = host.plan
        self._backend = backend_for(host.device, host.dtype)
        self._learning = backend_for(host.device, host.dtype, learns=True)
        # Rounded as the weights are: half precision makes 55.5 of 55.43.
        self._embedding_scale = torch.tensor(plan.embedding_scale, dtype=host.dtype).item()
        self._specs: Sequence[AttentionSpec] = ()

    def weights(self) -> dict[str, Tensor]:
        """Return every base weight by its Hugging Face name; fused ones as views."""
        return dict(self._host.named)

    def start(self, prefill: Prefill) -> tuple[Tensor, LlamaSession]:
        """Reads the prompts; what rows of one slot share is read once."""
        shape = self.shape
        rows = len(prefill.prompts)
        size = shape.layers, 2, rows, shape.kv_heads, prefill.room, shape.head_dim
        states = torch.empty(size, device=self.device, dtype=self.dtype)
        lengths = np.array([len(prompt) for prompt in prefill.prompts])
        cache = self._backend.cache(self.specs(prefill.room), states, lengths)
        last = list[Tensor]()
        counts = list[np.ndarray]()
        texts = [Text(prompt) for prompt in prefill.prompts]
        limit = prefill.budget.forward_tokens
        least = least_shared(shape)
        pieces = packings(texts, prefill.slots, self.device, limit, least=least)
        for piece, packing in pieces:  # they come sorted, so pieces are consecutive
            place = cache.states[:, :, piece[0] : piece[-1] + 1]
            x = self._read(packing, prefill.bank.gather(packing.owners), place)
            last.append(x[packing.predicts])
            counts.append(packing.read)
        return self._logits(torch.cat(last)), LlamaSession(self, cache, np.concatenate(counts))

    def logits(
        self,
        packing: Packing,
        adapters: Adapters,
        dropout: Dropout | None = None,
        *,
        learns_from: int = 0,
    ) -> Tensor:
        """Return logits ``(targets, vocab)`` where an answer's tokens, and what follows them, are
        predicted."""
        states = self._read(packing, dropping(adapters, dropout), learns_from=learns_from)
        return self._logits(taken(states, packing.predicts))

    def states(self, packing: Packing, layers: Sequence[int]) -> Tensor:
        """Return hidden states (``decoder.Decoder``); layers above the last of these are not
        computed."""
        forward = self._forward_over(packing, (None,) * len(self.sites))
        x = self._embedded(packing.ids)
        states = dict[int, Tensor]()
        ends = packing.stretches[packing.end_of]
        last = torch.from_numpy(ends["start"] + ends["count"] - 1).to(self.device)
        for index in range(max(layers) + 1):
            if index in layers:
                states[index] = taken(x, last)
            if index < max(layers):
                x = self._layer(index, x, forward)
        return torch.stack([states[layer] for layer in layers], dim=1)

    def decode(self, tokens: Tensor, cache: Cache, adapters: Adapters, shares: Shares) -> Tensor:
        """Append a token to each row; return logits ``(rows, vocab)``."""
        return self._advanced(
            tokens, _Forward(self._backend, adapters, shares, cache.attend), cache
        )

    def decode_with_prefill(
        self, tokens: Tensor, slots: Sequence[int], cache: MixedCache, prefill: Prefill
    ) -> Tensor:
        """Append a token to each row, whose slots are given, and read prompts in the same pass,
        whose rows then stand behind; return logits of all rows ``(rows, vocab)``.

        Piggybacked prefill (Sarathi-Serve, Agrawal et al. 2024, arXiv:2403.02310).
        """
        lengths = np.array([len(prompt) for prompt in prefill.prompts])
        cache.specs = self.specs(prefill.room)
        cache.reserve(lengths, prefill.room)
        read = Counter[int]()
        for slot, length in zip(prefill.slots, lengths.tolist(), strict=True):
            read[slot] += length
        writing = Counter(slots)
        ends = np.concatenate([np.arange(len(slots)), len(slots) - 1 + lengths.cumsum()])
        last = torch.from_numpy(ends).to(self.device)

        def attend(layer: int, heads: Tensor) -> Tensor:
            attention = cache.attend(layer, heads)
            return taken(attention, last) if layer == len(self._host.layers) - 1 else attention

        forward = _Forward(
            self._backend,
            prefill.bank.gather((*writing, *read)),
            (*writing.values(), *read.values()),
            attend,
            (last, (*writing.values(), *Counter(prefill.slots).values())),
        )
        ids = torch.from_numpy(np.concatenate(prefill.prompts)).to(self.device)
        logits = self._advanced(torch.cat([tokens, ids]), forward, cache)
        cache.keep(last)
        return logits

    def _advanced(self, tokens: Tensor, forward: _Forward, cache: Cache) -> Tensor:
        """Return logits after the newest tokens, which are in the cache then."""
        x = self._embedded(tokens)
        for index in range(len(self._host.layers)):
            x = self._layer(index, x, forward)
        cache.advance()
        return self._logits(x)

    def _read(
        self,
        packing: Packing,
        adapters: Adapters,
        states: Tensor | None = None,
        *,
        learns_from: int = 0,
    ) -> Tensor:
        """Return hidden states before the final norm, ``(ends, hidden)``.

        The last layer works for the ends alone: a sixth of all products in a host of five layers.
        Layers below ``learns_from`` keep nothing for a backward pass.
        """
        forward = self._forward_over(packing, adapters, states)
        x = self._embedded(packing.ids)
        is_learning = torch.is_grad_enabled()
        with torch.no_grad():
            for index in range(learns_from):
                x = self._layer(index, x, forward)
        if is_learning:
            x.requires_grad_()  # what adapters learn hangs on their inputs' gradients
        for index in range(learns_from, len(self._host.layers)):
            x = self._layer(index, x, forward)
        return x

    def _forward_over(
        self, packing: Packing, adapters: Adapters, states: Tensor | None = None
    ) -> _Forward:
        specs = self.specs(packing.longest)
        backend = self._current()
        line = backend.attention(packing, specs, states)
        ends = packing.ends, packing.end_counts
        return _Forward(backend, adapters, packing.counts, line.attend, ends)

    def _layer(self, index: int, x: Tensor, forward: _Forward) -> Tensor:
        """Compute one layer: ``x (tokens, hidden)`` to the same, or to ``(ends, hidden)`` in the
        last one."""
        layer = self._host.layers[index]
        backend = forward.backend
        shares = forward.shares
        qkv, out, gate_up, down = forward.adapters[4 * index : 4 * index + 4]
        heads = layer.qkv(backend.normalize(x, layer.attention_norm), qkv, shares)
        attention = forward.attend(index, heads.view(x.shape[0], -1, self.shape.head_dim))
        if forward.ends is not None and index == len(self._host.layers) - 1:
            ends, shares = forward.ends
            x = taken(x, ends)
        x = layer.out.onto(x, attention, out, shares, backend.normalize)
        normed = backend.normalize(x, layer.feed_norm)
        activation = self._host.plan.activation
        gated = backend.gated(layer.gate_up.base(normed), activation, gate_up, normed, shares)
        return layer.down.onto(x, gated, down, shares, backend.normalize)

    def specs(self, end: int) -> Sequence[AttentionSpec]:
        """Return each layer's way to look at up to ``end`` tokens."""
        if not self._specs or self._specs[0].table.shape[1] < end:
            # Not inference tensors: they outlive the call, and a learning step reads them too.
            with torch.inference_mode(False):
                self._specs = self._new_specs(max(256, 1 << (end - 1).bit_length()))
        return self._specs

    def _new_specs(self, positions: int) -> Sequence[AttentionSpec]:
        places = torch.arange(positions, dtype=torch.float32)
        tables = dict[Rope, Tensor]()
        for rope in {view.rope for view in self._host.plan.views}:
            turns = torch.outer(places, rope.speeds(self.shape.head_dim))
            cos, sin = turns.cos(), turns.sin()
            table = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)])
            tables[rope] = table.to(self.device, self.dtype)
        scale = self._host.plan.attention_scale
        kv_heads = self.shape.kv_heads
        return [
            AttentionSpec(layer.head_norms, view.window, tables[view.rope], scale, kv_heads)
            for layer, view in zip(self._host.layers, self._host.plan.views, strict=True)
        ]

    def _embedded(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self._host.embedding)
        return x if self._embedding_scale == 1.0 else x * self._embedding_scale

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._current().normalize(x, self._host.norm), self._host.head)

    def _current(self) -> TorchBackend:
        """Return the fastest back end, or the one that knows gradients where they are wanted."""
        return self._learning if torch.is_grad_enabled() else self._backend


class LlamaSession(Session):
    """Half-written rows and the cache of what they have read."""

    def __init__(self, decoder: LlamaDecoder, cache: Cache, tokens_read: np.ndarray) -> None:
        self._decoder, self.cache, self.tokens_read = decoder, cache, tokens_read

    def step(self, tokens: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        return self._decoder.decode(tokens, self.cache, adapters, shares)

    def join(self, prefill: Prefill) -> Tensor:
        longest = max(map(len, prefill.prompts))
        logits, other = self._decoder.start(replace(prefill, room=longest))
        self.cache.join(other.cache, prefill.room)
        self.cache.specs = self._decoder.specs(prefill.room)
        return logits

    def admit(self, tokens: Tensor, slots: Sequence[int], prefill: Prefill) -> Tensor:
        prompts, decoder = prefill.prompts, self._decoder
        is_long = sum(map(len, prompts)) > min(prefill.budget.forward_tokens, MAX_MIXED_TOKENS)
        is_apart = is_long or any_shared(prompts, prefill.slots, least_shared(decoder.shape))
        if is_apart or not isinstance(self.cache, MixedCache):
            return super().admit(tokens, slots, prefill)
        ahead = copy(self.cache)  # rows stand where they stood if memory runs out
        logits = if_memory_lasts(lambda: decoder.decode_with_prefill(tokens, slots, ahead, prefill))
        if logits is None:
            del ahead  # and the memory that it took
            return self.step(tokens, *prefill.bank.for_step(slots))
        self.cache = ahead
        return logits

    def keep(self, rows: Tensor) -> None:
        self.cache.keep(rows)
