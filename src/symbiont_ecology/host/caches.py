"""Keys and values of half-written rows, and what the newest token of each row sees of them.

``RaggedCache`` is for the compiled loops: every row lies there at its own length, and a row that
has ended is merely not looked at any more. ``PaddedCache`` is for torch, which wants rectangles:
all rows write to the same place behind the longest prompt, a mask hides the gap, and rows that stay
are copied together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.host import native
from symbiont_ecology.host.layers import Norm
from symbiont_ecology.host.sliding_window import windowed


@dataclass(frozen=True)
class Sight:
    """How one layer looks at its cache.

    ``norm`` is of queries and keys, if they are normed (Qwen3), ``window`` how many tokens are seen
    (None: all). ``table (2, positions, head_dim)`` are cosines and sines of positions, the first
    half of the latter negated. Scores are multiplied by ``scale``.
    """

    norm: Norm | None
    window: int | None
    table: Tensor
    scale: float


class Cache(Protocol):
    """Rows that are being written. ``states`` is
    ``(layers, 2, rows, kv_heads, room, head_dim)``."""

    states: Tensor

    def attend(self, index: int, heads: Tensor) -> Tensor:
        """Adds the newest tokens' keys and values to a layer; what their queries see,
        ``(rows, width)``.

        ``heads`` is ``(rows, heads + 2 · kv_heads, head_dim)``, as the host's products made them.
        """
        ...

    def advance(self) -> None:
        """The newest tokens have been seen by all layers."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only, in this order."""
        ...


class RaggedCache:
    """Every row at its own length, in the entry that it got first."""

    def __init__(self, sights: Sequence[Sight], states: Tensor, lengths: np.ndarray) -> None:
        self.states, self._sights = states, sights
        self._lengths, self._entries = lengths.astype(np.int64), np.arange(len(lengths))

    def attend(self, index: int, heads: Tensor) -> Tensor:
        """As ``Cache``."""
        return native.attend(
            heads, self._sights[index], self.states[index], self._entries, self._lengths
        )

    def advance(self) -> None:
        """As ``Cache``."""
        self._lengths = self._lengths + 1

    def keep(self, rows: Tensor) -> None:
        """As ``Cache``: the others are not looked at any more."""
        kept = rows.numpy()
        self._lengths, self._entries = self._lengths[kept], self._entries[kept]


class PaddedCache:
    """All rows as long as the longest: short prompts leave a gap before the first new token."""

    def __init__(self, sights: Sequence[Sight], states: Tensor, lengths: np.ndarray) -> None:
        self.states, self._sights = states, sights
        self._lengths = torch.from_numpy(lengths).to(states.device)
        self._longest, self._written = int(lengths.max()), 0
        kv_heads, room = states.shape[3:5]
        spots = torch.arange(room, device=states.device)
        is_gap = (spots >= self._lengths[:, None]) & (spots < self._longest)
        lowest = torch.finfo(states.dtype).min
        mask = torch.zeros_like(is_gap, dtype=states.dtype).masked_fill_(is_gap, lowest)
        self._mask = mask.repeat_interleave(kv_heads, dim=0)[:, None]
        # Not left as they are: masked places enter the product as 0 · value, and 0 · NaN is NaN.
        self.states[..., : self._longest, :] = 0
        self._masks: dict[int | None, Tensor] = {}  # by window

    def attend(self, index: int, heads: Tensor) -> Tensor:
        """As ``Cache``."""
        sight, end = self._sights[index], self._longest + self._written + 1
        kv_heads, size = self.states.shape[3], self.states.shape[5]
        both = heads.shape[1] - kv_heads
        queries = both - kv_heads
        turned = turn(heads[:, :both], sight.norm, sight.table, self._lengths + self._written)
        keys, values = self.states[index]
        keys[:, :, end - 1], values[:, :, end - 1] = turned[:, queries:], heads[:, both:]
        # Query heads that share a key head are more rows of one small product.
        q = turned[:, :queries].reshape(-1, queries // kv_heads, size)
        k, v = keys.flatten(0, 1)[:, :end], values.flatten(0, 1)[:, :end]
        scores = torch.baddbmm(
            self._seen(sight.window, end), q, k.transpose(1, 2), alpha=sight.scale
        )
        weights = scores.softmax(-1, dtype=torch.float32).to(heads.dtype)
        return torch.bmm(weights, v).view(len(heads), -1)

    def advance(self) -> None:
        """As ``Cache``."""
        self._written += 1
        self._masks = {}

    def keep(self, rows: Tensor) -> None:
        """As ``Cache``."""
        self._lengths = self._lengths[rows]
        self._mask = self._mask.view(-1, self.states.shape[3], *self._mask.shape[1:])[rows].flatten(
            0, 1
        )
        self.states = self.states.index_select(2, rows)

    def _seen(self, window: int | None, end: int) -> Tensor:
        if window not in self._masks:
            self._masks[window] = windowed(
                self._mask[:, :, :end], window, self._lengths, self._longest
            )
        return self._masks[window]


def turn(x: Tensor, norm: Norm | None, table: Tensor, positions: Tensor) -> Tensor:
    """Heads ``(tokens, heads, head_dim)`` normed (Qwen3) and turned by their
    ``positions (tokens,)``.

    ``table (2, positions, head_dim)`` as in ``Sight``.
    """
    if native.takes(x):
        return native.turn(x, norm, table, positions)
    cosines, sines = table.index_select(1, positions)[:, :, None]
    if norm is not None:
        x = norm(x)
    half = x.shape[-1] // 2
    return torch.addcmul(x * cosines, torch.cat((x[..., half:], x[..., :half]), -1), sines)
