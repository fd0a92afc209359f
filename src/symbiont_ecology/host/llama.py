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
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from symbiont_ecology.host.backend.attention import AttentionSpec, PackedAttention
from symbiont_ecology.host.backend.bank import SlotBank
from symbiont_ecology.host.backend.compiled import backend_for
from symbiont_ecology.host.backend.lowrank import Adapters, Shares
from symbiont_ecology.host.backend.torch_backend import Cache, TorchBackend
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import NextTokens
from symbiont_ecology.host.dropout import Dropout
from symbiont_ecology.host.layers import LlamaWeights
from symbiont_ecology.host.packing import (
    Packing,
    Text,
    chunks,
    least_shared,
    pack_texts,
    preambles_of,
    taken,
)
from symbiont_ecology.host.preambles import Preambles
from symbiont_ecology.types import HOST_SLOT


@dataclass(frozen=True)
class _Forward:
    """What tokens meet on their way through the layers.

    ``attend`` gives what they see in a layer. ``ends`` are the places that alone go on after the
    last layer's attention, and how many are each owner's; None: all of them.
    """

    backend: TorchBackend
    adapters: Adapters
    shares: Shares
    attend: Callable[[int, Tensor], Tensor]
    ends: tuple[Tensor, Sequence[int]] | None = None


class LlamaDecoder:
    """Computes a Llama-like host from its weights (see ``decoder.Decoder``)."""

    def __init__(self, host: LlamaWeights, *, is_checkpointing: bool = False) -> None:
        self._host, self._is_checkpointing = host, is_checkpointing
        self.device, self.dtype, self.fan_in_fan_out = host.device, host.dtype, False
        self.sites, self.shape, plan = host.sites, host.shape, host.plan
        self._backend, self._learning = backend_for(host.device, host.dtype), TorchBackend()
        # Rounded as the weights are: half precision makes 55.5 of 55.43.
        self._embedding_scale = torch.tensor(plan.embedding_scale, dtype=host.dtype).item()
        self._attention_scale = (plan.query_scalar or self.shape.head_dim) ** -0.5
        self._views = tuple(dict.fromkeys(plan.views))
        self._preambles = Preambles()
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
        budget: MemoryBudget,
        beside: NextTokens | None = None,
    ) -> tuple[Tensor, LlamaSession]:
        """Reads the prompts; what rows of one slot share is read once. Rows beside them go on in
        the pass over the first piece."""
        lengths, shape = np.array([len(prompt) for prompt in prompts]), self.shape
        end = int(lengths.max()) + room
        size = shape.layers, 2, len(prompts), shape.kv_heads, end, shape.head_dim
        states = torch.empty(size, device=self.device, dtype=self.dtype)
        cache = self._backend.cache(self.specs(end), states, lengths)
        last, counts = list[Tensor](), list[np.ndarray]()
        texts, least = [Text(prompt) for prompt in prompts], least_shared(shape)
        preambles = preambles_of(prompts, slots, least)
        for piece in chunks(texts, slots, budget.forward_tokens, least=least, preambles=preambles):
            rows = slice(piece[0], piece[-1] + 1)  # they come sorted, so pieces are consecutive
            part, sizes = texts[rows], preambles[rows]
            packing = pack_texts(part, slots[rows], self.device, least=least, preambles=sizes)
            kept = self._kept(packing, bank, budget.kept_bytes)
            line = self._line(packing, cache.states[:, :, rows], kept)
            if beside is None or last:
                x = self._read(packing, bank.gather(packing.owners), line)
            else:
                written, x = self._read_beside(beside, packing, bank, line)
                last.append(written)
            last.append(x[packing.predicts])
            counts.append(packing.read)
        tokens_read = np.concatenate(counts) + _first_of(preambles, prompts, slots)
        logits = self._logits(torch.cat(last))
        if beside is not None:
            _cache_of(beside).advance()  # now that memory has sufficed for all of it
        return logits, LlamaSession(self, cache, tokens_read)

    def logits(
        self,
        packing: Packing,
        adapters: Adapters,
        dropout: Dropout | None = None,
        *,
        learns_from: int = 0,
    ) -> Tensor:
        """Logits ``(targets, vocab)`` where an answer's tokens, and what follows them, are
        predicted."""
        line, adapters = self._line(packing), adapters.dropping(dropout)
        states = self._read(packing, adapters, line, learns_from=learns_from)
        return self._logits(taken(states, packing.predicts))

    def decode(self, tokens: Tensor, cache: Cache, adapters: Adapters, shares: Shares) -> Tensor:
        """One more token per row; logits ``(rows, vocab)``."""
        forward = _Forward(self._backend, adapters, shares, cache.attend)
        x = self._through(self._embedded(tokens), forward)
        cache.advance()
        return self._logits(x)

    def _kept(self, packing: Packing, bank: SlotBank, most_bytes: int) -> Tensor | None:
        """Keys and values of the places that a packing keeps, ``(layers, 2, places, kv_heads,
        head_dim)``."""
        if not packing.kept:
            return None
        states = []
        for ids, owner in packing.preambles:
            weights = None if owner == HOST_SLOT else bank.held(owner)
            reader = partial(self._alone, ids, owner, bank)
            states.append(self._preambles.get(weights, ids.tobytes(), reader, most_bytes))
        return torch.cat(states, dim=2)

    def _alone(self, ids: np.ndarray, owner: int, bank: SlotBank) -> Tensor:
        """Keys and values of a preamble, ``(layers, 2, tokens, kv_heads, head_dim)``."""
        shape, packing = self.shape, pack_texts([Text(ids)], [owner], self.device)
        size = shape.layers, 2, 1, shape.kv_heads, len(ids), shape.head_dim
        states = torch.empty(size, device=self.device, dtype=self.dtype)
        self._read(packing, bank.gather((owner,)), self._line(packing, states))
        return states[:, :, 0].transpose(2, 3).contiguous()

    def _line(
        self, packing: Packing, states: Tensor | None = None, kept: Tensor | None = None
    ) -> PackedAttention:
        """The attention on a packed line (see ``PackedAttention``)."""
        return self._current().packed_attention(packing, self.specs(packing.longest), states, kept)

    def _read(
        self, packing: Packing, adapters: Adapters, line: PackedAttention, *, learns_from: int = 0
    ) -> Tensor:
        """Hidden states before the final norm, ``(ends, hidden)``.

        The last layer works for the ends alone: a sixth of all products in a host of five layers.
        Layers below ``learns_from`` keep nothing for a backward pass.
        """
        ends = packing.ends, packing.end_counts
        forward = _Forward(self._current(), adapters, packing.counts, line.attend, ends)
        x, is_learning = self._embedded(packing.ids), torch.is_grad_enabled()
        with torch.no_grad():
            for index in range(learns_from):
                x = self._layer(index, x, forward)
        if is_learning:
            x.requires_grad_()  # what adapters learn hangs on their inputs' gradients
        for index in range(learns_from, len(self._host.layers)):
            if is_learning and self._is_checkpointing:
                x = checkpoint(self._layer, index, x, forward, use_reentrant=False)
            else:
                x = self._layer(index, x, forward)
        return x

    def _read_beside(
        self, rows: NextTokens, packing: Packing, bank: SlotBank, line: PackedAttention
    ) -> tuple[Tensor, Tensor]:
        """The same as ``_read``, and in front the states of rows that go on, in one pass: each of
        them is one more token (Agrawal et al. 2024, arXiv:2403.02310)."""
        count, cache, owners = len(rows.tokens), _cache_of(rows), Counter(rows.slots)

        def attend(layer: int, heads: Tensor) -> Tensor:
            written, read = cache.attend(layer, heads[:count]), line.attend(layer, heads[count:])
            return torch.cat([written, read])

        front = torch.arange(count, device=self.device)
        ends = torch.cat([front, packing.ends + count]), (*owners.values(), *packing.end_counts)
        adapters = bank.gather((*owners, *packing.owners))
        shares = *owners.values(), *packing.counts
        forward = _Forward(self._backend, adapters, shares, attend, ends)
        x = self._through(self._embedded(torch.cat([rows.tokens, packing.ids])), forward)
        return x[:count], x[count:]

    def _through(self, x: Tensor, forward: _Forward) -> Tensor:
        """All layers, where nothing is learned."""
        for index in range(len(self._host.layers)):
            x = self._layer(index, x, forward)
        return x

    def _layer(self, index: int, x: Tensor, forward: _Forward) -> Tensor:
        """One layer: ``x (tokens, hidden)`` to the same, or to ``(ends, hidden)`` in the last
        one."""
        layer, backend, shares = self._host.layers[index], forward.backend, forward.shares
        qkv, out, gate_up, down = forward.adapters.sites[4 * index : 4 * index + 4]
        heads = layer.qkv(backend.normalize(x, layer.attention_norm), qkv, shares)
        attention = forward.attend(index, heads.view(x.shape[0], -1, self.shape.head_dim))
        if forward.ends is not None and index == len(self._host.layers) - 1:
            places, shares = forward.ends
            x = taken(x, places)
        x = layer.out.onto(x, attention, out, shares, backend.normalize)
        normed, activation = backend.normalize(x, layer.feed_norm), self._host.plan.activation
        gated = backend.gated(layer.gate_up.base(normed), activation, gate_up, normed, shares)
        return layer.down.onto(x, gated, down, shares, backend.normalize)

    def specs(self, end: int) -> list[AttentionSpec]:
        """How each layer looks at up to ``end`` tokens."""
        if self._tables is None or self._tables.shape[2] < end:
            # Not inference tensors: the tables outlive the call, and a learning step reads them
            # too.
            with torch.inference_mode(False):
                places = torch.arange(max(256, end), dtype=torch.float32)
                speeds = [view.rope.speeds(self.shape.head_dim) for view in self._views]
                turns = torch.stack([torch.outer(places, speed) for speed in speeds])
                cos, sin = turns.cos(), turns.sin()
                tables = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1)
                self._tables = tables.to(self.device, self.dtype)
        table_of, kv_heads = dict(zip(self._views, self._tables, strict=True)), self.shape.kv_heads
        return [
            AttentionSpec(
                layer.head_norms, view.window, table_of[view], self._attention_scale, kv_heads
            )
            for layer, view in zip(self._host.layers, self._host.plan.views, strict=True)
        ]

    def _embedded(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self._host.embedding)
        return x if self._embedding_scale == 1.0 else x * self._embedding_scale

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self._current().normalize(x, self._host.norm), self._host.head)

    def _current(self) -> TorchBackend:
        """The fastest back end, or the one that knows gradients where they are wanted."""
        return self._learning if torch.is_grad_enabled() else self._backend


class LlamaSession:
    """Half-written rows and the cache of what they have read."""

    def __init__(self, decoder: LlamaDecoder, cache: Cache, tokens_read: np.ndarray) -> None:
        self._decoder, self.cache, self.tokens_read = decoder, cache, tokens_read

    def step(self, tokens: Tensor, adapters: Adapters, shares: Shares) -> Tensor:
        """Appends one token per row and returns the next logits."""
        return self._decoder.decode(tokens, self.cache, adapters, shares)

    def keep(self, rows: Tensor) -> None:
        """Goes on with fewer rows."""
        self.cache.keep(rows)

    def join(self, other: LlamaSession, room: int) -> None:
        """Goes on with the rows of another session behind its own."""
        specs = self._decoder.specs(room)  # memory may run out here too
        self.cache.join(other.cache, room)
        self.cache.specs = specs


def _cache_of(rows: NextTokens) -> Cache:
    assert isinstance(rows.session, LlamaSession)
    return rows.session.cache


def _first_of(
    preambles: Sequence[int], prompts: Sequence[np.ndarray], slots: Sequence[int]
) -> np.ndarray:
    """The tokens of each preamble where it is met first, ``(rows,)``. One that was kept counts as
    read: a run that was killed and goes on, with nothing kept, must count alike."""
    first, keys = np.zeros(len(prompts), dtype=np.int64), set[tuple[int, bytes]]()
    for row, (length, prompt, slot) in enumerate(zip(preambles, prompts, slots, strict=True)):
        key = slot, prompt[:length].tobytes()
        first[row] = length if key not in keys else 0
        keys.add(key)
    return first
