"""The back end of torch: it runs everywhere, and it says what a back end does.

A decoder leaves to its back end what lies between the large matrix products: norms, gates and
attention, and the slot bank with the caches in the form that these want. ``TorchBackend`` computes
this in rectangles, which is what torch wants. Others are registered in ``back_ends`` and override
what they do faster; ``backend_for`` returns the fastest one that suits a host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.registry import Registry
from symbiont_ecology.model.backend.attention import (
    AttentionSpec,
    PackedAttention,
    RectangleAttention,
    RMSNorm,
    apply_rotary,
)
from symbiont_ecology.model.backend.bank import Learners, SlotBank
from symbiont_ecology.model.backend.lowrank import LowRankTerm, Shares

Activation = Callable[[Tensor], Tensor]
CheckResult = tuple[str, str]
"""One finding of ``symbiont doctor``: ``ok`` or ``warn``, and a line."""


class Cache(ABC):
    """Keys and values of rows that are being written.

    ``states`` is ``(layers, 2, rows, kv_heads, room, head_dim)``; ``lengths`` are those of the
    prompts, which a ``PackedAttention`` puts there.
    """

    def __init__(self, specs: Sequence[AttentionSpec], states: Tensor, lengths: np.ndarray) -> None:
        self.specs, self.states = specs, states

    @abstractmethod
    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """Adds the newest tokens' keys and values to a layer; what their queries see,
        ``(rows, all query heads · head_dim)``.

        ``heads`` is ``(rows, heads + 2 · kv_heads, head_dim)``, as the layer's products made them.
        """

    @abstractmethod
    def advance(self) -> None:
        """Note that the newest tokens have been seen by all layers."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only, in this order."""

    @abstractmethod
    def join(self, other: Self, room: int) -> None:
        """Goes on with the rows of another cache behind its own, each in ``room`` places. If memory
        runs out, nothing has changed."""


class MixedCache(Cache):
    """A cache whose attention reads prompts in the pass in which its rows go on."""

    @abstractmethod
    def reserve(self, lengths: np.ndarray, room: int) -> None:
        """Make each token of prompts with these ``lengths`` a row behind the others: those of one
        prompt share an entry, and a token sees what stands in front of it. ``keep`` the last of
        each prompt once all layers have seen them. No row will have more than ``room`` tokens."""


class PaddedCache(Cache):
    """All rows as long as the longest: short prompts leave a gap before the first new token.

    All rows write to the same place behind the longest prompt, a mask hides the gap, and rows that
    stay are copied together.
    """

    def __init__(self, specs: Sequence[AttentionSpec], states: Tensor, lengths: np.ndarray) -> None:
        super().__init__(specs, states, lengths)
        self._begin(states, torch.from_numpy(lengths).to(states.device))
        # Not left as they are: masked places enter the product as 0 · value, and 0 · NaN is NaN.
        self.states[..., : self._longest, :] = 0

    def _begin(self, states: Tensor, lengths: Tensor) -> None:
        """Goes on with these states, where nothing is written behind rows of these lengths. If
        memory runs out, nothing has changed."""
        longest = int(lengths.max())
        (kv_heads, room) = states.shape[3:5]
        spots = torch.arange(room, device=states.device)
        is_gap = (spots >= lengths[:, None]) & (spots < longest)
        lowest = torch.finfo(states.dtype).min
        mask = torch.zeros_like(is_gap, dtype=states.dtype).masked_fill_(is_gap, lowest)
        self._mask = mask.repeat_interleave(kv_heads, dim=0)[:, None]
        self._masks: dict[int | None, Tensor] = {}  # by window
        self.states = states
        self._lengths = lengths
        self._longest = longest
        self._written = 0

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        spec = self.specs[layer]
        end = self._longest + self._written + 1
        border = heads.shape[1] - spec.kv_heads
        size = heads.shape[2]
        queries = border - spec.kv_heads
        rotated = apply_rotary(heads[:, :border], spec, self._lengths + self._written)
        keys, values = self.states[layer]
        keys[:, :, end - 1], values[:, :, end - 1] = rotated[:, queries:], heads[:, border:]
        # Query heads that share a key head are more rows of one small product.
        q = rotated[:, :queries].reshape(-1, queries // spec.kv_heads, size)
        k, v = keys.flatten(0, 1)[:, :end], values.flatten(0, 1)[:, :end]
        mask = self._visible(spec.window, end)
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=spec.scale)
        weights = scores.softmax(-1, dtype=torch.float32).to(heads.dtype)
        return torch.bmm(weights, v).view(len(heads), -1)

    def advance(self) -> None:
        self._written += 1
        self._masks = {}

    def keep(self, rows: Tensor) -> None:
        self._lengths = self._lengths[rows]
        kv_heads = self.states.shape[3]
        self._mask = self._mask.view(-1, kv_heads, *self._mask.shape[1:])[rows].flatten(0, 1)
        self.states = self.states.index_select(2, rows)

    def join(self, other: Self, room: int) -> None:
        """Lay the tokens of all rows without gaps, which is a copy."""
        states = torch.cat([cache._laid(room) for cache in (self, other)], dim=2)
        self._begin(states, torch.cat([cache._lengths + cache._written for cache in (self, other)]))

    def _laid(self, room: int) -> Tensor:
        """Return the states with the tokens of each row from its first place on."""
        places = torch.arange(room, device=self.states.device).expand(len(self._lengths), -1)
        gap = self._longest - self._lengths[:, None]
        places = torch.where(places < self._lengths[:, None], places, places + gap)
        places = places.clamp_(max=max(self._longest + self._written - 1, 0))
        return self.states.take_along_dim(places[None, None, :, None, :, None], dim=4)

    def _visible(self, window: int | None, end: int) -> Tensor:
        """Return the mask of the first ``end`` places."""
        if window not in self._masks:
            self._masks[window] = self._windowed(self._mask[:, :, :end], window)
        return self._masks[window]

    def _windowed(self, mask: Tensor, window: int | None) -> Tensor:
        """Return the mask with what is beyond each newest token's window hidden, too. Distances are
        those of positions in a row, not of places, which have a gap."""
        places = mask.shape[-1]
        if window is None or places <= window:
            return mask
        spots = torch.arange(places, device=mask.device)
        new_positions = self._lengths[:, None] + spots - self._longest
        positions = torch.where(spots < self._longest, spots, new_positions)
        is_far = new_positions[:, -1:] - positions >= window
        is_far = is_far.repeat_interleave(len(mask) // len(self._lengths), dim=0)[:, None]
        return mask.masked_fill(is_far, torch.finfo(mask.dtype).min)


back_ends: Registry[TorchBackend] = Registry("back end", __name__)


def backend_for(device: torch.device, dtype: torch.dtype, *, learns: bool = False) -> TorchBackend:
    """Return the fastest back end for a host with such weights; one that ``learns`` knows
    gradients."""
    kinds = (back_ends[name] for name in back_ends.names())
    return max(
        (kind for kind in kinds if kind.suits(device, dtype, learns=learns)),
        key=lambda kind: kind.speed,
    )()


@back_ends.register("torch")
@dataclass(frozen=True)
class TorchBackend:
    """Computes what a decoder asks of a back end by torch, on every device."""

    bank: ClassVar[type[SlotBank]] = SlotBank
    cache: ClassVar[type[Cache]] = PaddedCache
    learners: ClassVar[type[Learners]] = Learners
    attention: ClassVar[type[PackedAttention]] = RectangleAttention
    speed: ClassVar[int] = 0
    """Rank among those that suit a host: the highest is taken."""

    @classmethod
    def suits(cls, device: torch.device, dtype: torch.dtype, *, learns: bool) -> bool:
        """Return whether it can compute a host with such weights."""
        return True

    @classmethod
    def checks(cls) -> Iterable[CheckResult]:
        """Return what ``symbiont doctor`` says of it."""
        return ()

    def normalize(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """Return ``x (tokens, width)`` normed."""
        return norm(x)

    def gated(
        self, y: Tensor, activation: Activation, term: LowRankTerm | None, x: Tensor, shares: Shares
    ) -> Tensor:
        """Return ``activation(gate) · up`` (arXiv:2002.05202), ``(tokens, width)``.

        Gate and up stand side by side in ``y (tokens, 2 · width)``, once the low-rank term for
        ``x`` has been added to it.
        """
        if term is not None:
            y = term.add_to(y, x, shares)
        gate, up = y.chunk(2, dim=-1)
        gate = activation(gate)
        return gate * up if torch.is_grad_enabled() else gate.mul_(up)


class EightBits(Protocol):
    """Base weights in eight bits."""

    def quantized(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return a matrix ``(d_in, d_out)`` in eight bits, and the scale of each output,
        ``(d_out,)``."""

    def product(self, x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
        """Return ``x (tokens, d_in)`` times quantized weights, ``(tokens, d_out)``; gradients are
        those of the product with the very weights that the eight bits stand for."""


eight_bit_forms: Registry[EightBits] = Registry("eight-bit form", __name__)


@cache
def eight_bits() -> EightBits:
    """Return the form of weights of eight bits.

    Raises:
        HostError: no extension has one.
    """
    for name in eight_bit_forms.names():
        return eight_bit_forms.build(name)
    raise HostError(
        "expected the extension native for dtype=int8, found none: install it, or use float32"
    )
