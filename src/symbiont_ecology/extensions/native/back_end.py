"""The compiled back end: adapters are read where they lie, rows are as long as they are.

It serves float32 hosts on a CPU. Where there was no compiler at installation, and for every other
host, torch computes the same. For learning, what lies between two large products is one operation
for autograd, which keeps its input and computes the rest again. So a lesson takes less memory and
time than with torch: on the embedded host six tenths of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.extensions.native.compiling import digest
from symbiont_ecology.extensions.native.native_ops import Pointers
from symbiont_ecology.model.backend.attention import AttentionSpec, PackedAttention, RMSNorm
from symbiont_ecology.model.backend.bank import Arrangement, Learners, SlotBank
from symbiont_ecology.model.backend.lowrank import Adapters, LowRankTerm, Shares, Site
from symbiont_ecology.model.backend.torch_backend import (
    Activation,
    CheckResult,
    MixedCache,
    TorchBackend,
    back_ends,
)

GROWTH_ROWS, MAX_SPARE = 8, 2
"""Entries by which a cache grows, and the multiple of what its rows need that it may hold."""


class RaggedCache(MixedCache):
    """A cache of rows of their own lengths, each in the entry that it got first."""

    def __init__(self, specs: Sequence[AttentionSpec], states: Tensor, lengths: np.ndarray) -> None:
        super().__init__(specs, states, lengths)
        self._lengths, self._entries = lengths.astype(np.int64), np.arange(len(lengths))

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        spec, states = self.specs[layer], self.states[layer]
        return native_ops.decode_attention(heads, spec, states, self._entries, self._lengths)

    def advance(self) -> None:
        self._lengths = self._lengths + 1

    def keep(self, rows: Tensor) -> None:
        indices = rows.numpy()
        self._lengths, self._entries = self._lengths[indices], self._entries[indices]

    def reserve(self, lengths: np.ndarray, room: int) -> None:
        entries = self._free_entries(len(lengths), room)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._entries = np.concatenate([self._entries, np.repeat(entries, lengths)])
        self._lengths = np.concatenate([self._lengths, np.arange(lengths.sum()) - first])

    def join(self, other: Self, room: int) -> None:
        entries, longest = self._free_entries(len(other._entries), room), other._lengths.max()
        source = other.states[:, :, other._entries, :, :longest]
        self.states[:, :, entries, :, :longest] = source
        self._entries = np.concatenate([self._entries, entries])
        self._lengths = np.concatenate([self._lengths, other._lengths])

    def _free_entries(self, count: int, room: int) -> np.ndarray:
        """Return entries for so many more rows."""
        self._make_room(len(self._entries) + count, room)
        is_free = np.ones(self.states.shape[2], dtype=bool)
        is_free[self._entries] = False
        return np.flatnonzero(is_free)[:count]

    def _make_room(self, rows: int, room: int) -> None:
        """Move to another cache if this one has no place for so many rows of so many tokens.

        It stays as long and as wide as it was unless that is much more than these rows need: then
        many short rows that left do not make a long one dear, and usual changes copy nothing.
        """
        layers, pair, entries, kv_heads, places, size = self.states.shape
        if rows <= entries and room <= places:
            return
        needed = -(-rows // GROWTH_ROWS) * GROWTH_ROWS
        entries, places = max(entries, needed), max(places, room)
        if entries * places > MAX_SPARE * needed * room:
            entries, places = needed, room
        longest = self._lengths.max()
        states = self.states.new_empty(layers, pair, entries, kv_heads, places, size)
        source = self.states[:, :, self._entries, :, :longest]
        states[:, :, : len(self._entries), :, :longest] = source
        self.states, self._entries = states, np.arange(len(self._entries))


class RaggedAttention(PackedAttention):
    """Attention straight on the line, every row as long as it is."""

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        spec, packing = self.specs[layer], self.packing
        border = heads.shape[1] - spec.kv_heads
        values = heads[:, border:]
        rotated = native_ops.rope(heads[:, :border], spec, packing.positions)
        if self.states is not None:
            native_ops.write_kv(self.states[layer], rotated, values, packing.pieces)
        stretches = self._stretches[self.is_narrow(layer)]
        return native_ops.attention(rotated, values, stretches, spec)

    @cached_property
    def _stretches(self) -> list[np.ndarray]:
        return [self.packing.looking(is_narrow=is_narrow) for is_narrow in (False, True)]


class AddressBank(SlotBank):
    """A bank of the addresses of placed adapters. Torch's arena is made when something asks for
    tiles."""

    def __init__(
        self, arrangement: Arrangement, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(arrangement, slots, device, dtype)
        self._addresses = Addresses(tuple(arrangement.sites), arrangement.layout, slots)

    def place(self, slot: int, weights: AdapterWeights | None) -> None:
        if weights is self._held[slot]:
            return
        super().place(slot, weights)
        address = 0 if weights is None else weights.vector.ctypes.data
        self._addresses.place(slot, address, weights)

    def gather(self, owners: Sequence[int]) -> Adapters:
        held = [self._held[slot] for slot in owners if slot != HOST_SLOT]
        return self._addresses.of(owners, held)

    def for_step(self, slots: Sequence[int]) -> tuple[Adapters, Shares]:
        counts = Counter(slots)
        return self.gather(tuple(counts)), tuple(counts.values())


class Addresses:
    """Addresses of the vectors of placed adapters, or of others in the order of their layout."""

    def __init__(self, sites: tuple[Site, ...], layout: AdapterLayout, slots: int) -> None:
        # One more entry: the bare host, slot -1, is the last and has rank 0.
        self._ranks, self._bases = np.zeros((2, slots + 1), dtype=np.int64)
        self._scales = np.zeros(slots + 1, dtype=np.float32)
        self._counts, self._totals, table = _modules_of(sites, layout)
        self._d_ins, self._starts, self._widths, self._columns = table

    def place(self, slot: int, address: int, weights: AdapterWeights | None) -> None:
        """Note the address of an adapter's numbers, or of its gradient's. They must live for as
        long as they are noted."""
        sizes = (0, 0.0) if weights is None else (weights.rank, weights.scaling)
        (self._ranks[slot], self._scales[slot]), self._bases[slot] = sizes, address

    def of(
        self, owners: Sequence[int], weights: Sequence[object] = ()
    ) -> tuple[Pointers | None, ...]:
        """Return pointers for some slots, site by site, None where a site has no adapter. They keep
        ``weights``, whose memory they point at, alive."""
        rows = np.array(owners, dtype=np.int64)
        ranks, scales = self._ranks[rows], self._scales[rows]
        if not ranks.any():
            return (None,) * len(self._counts)
        a = self._bases[rows] + 4 * ranks * self._starts[:, None]
        b = a + 4 * ranks * self._d_ins[:, None]
        memory = (self, ranks, scales, a, b, weights)
        columns, widths, ranks_at, scales_at, a_at, b_at = (
            array.ctypes.data for array in (self._columns, self._widths, ranks, scales, a, b)
        )
        sites, first = list[Pointers | None](), 0
        for count, total in zip(self._counts, self._totals, strict=True):
            if count:
                offset, row_offset = 8 * first, 8 * first * len(rows)
                site = count, columns + offset, widths + offset
                factors = ranks_at, scales_at, a_at + row_offset, b_at + row_offset
                size = int(self._d_ins[first]), total
                sites.append(Pointers(size, len(rows), site, factors, memory))
            else:
                sites.append(None)
            first += count
        return tuple(sites)


@lru_cache(maxsize=16)
def _modules_of(
    sites: tuple[Site, ...], layout: AdapterLayout
) -> tuple[list[int], list[int], np.ndarray]:
    """Return the number of modules with adapters and the width of all outputs of each site; and of
    those modules the input widths, where A begins at rank 1, output widths and columns,
    ``(4, modules)``."""
    starts = {name: a.start for name, a, _, _, _ in layout.blocks(1)}
    counts, totals = list[int](), list[int]()
    modules: list[tuple[int, int, int, int]] = []
    for site in sites:
        columns = np.cumsum([0, *(d_out for _, _, d_out in site)])
        adapted = [
            (d_in, starts[name], d_out, int(column))
            for (name, d_in, d_out), column in zip(site, columns, strict=False)
            if name in starts
        ]
        modules += adapted
        counts.append(len(adapted))
        totals.append(int(columns[-1]))
    table = np.array(modules, dtype=np.int64).reshape(-1, 4)
    return counts, totals, np.ascontiguousarray(table.T)


class VectorLearners(Learners):
    """Learners where their numbers lie: nothing is copied, and smaller ranks cost less."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        layout: AdapterLayout,
        weights: Sequence[AdapterWeights],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.weights = weights
        self._slopes = [torch.zeros(len(one.vector)) for one in weights]
        self._from, self._to = (Addresses(sites, layout, len(weights)) for _ in range(2))
        for owner, (one, slope) in enumerate(zip(weights, self._slopes, strict=True)):
            self._from.place(owner, one.vector.ctypes.data, one)
            self._to.place(owner, slope.data_ptr(), one)

    def adapters(self, owners: Sequence[int]) -> Adapters:
        factors, slopes = self._from.of(owners, self.weights), self._to.of(owners, self._slopes)
        pairs = zip(factors, slopes, strict=True)
        return tuple(one and to and LearningPointers(one, to) for one, to in pairs)

    def gradients(self) -> Iterator[Tensor]:
        yield from self._slopes


@dataclass(frozen=True)
class LearningPointers:
    """Addresses of the factors of one site, and of their gradients."""

    factors: Pointers
    gradient: Pointers

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        assert isinstance(shares, Sequence)
        if torch.is_grad_enabled() and x.requires_grad:
            added: Tensor = _LowRank.apply(x, y, self, shares)  # type: ignore[no-untyped-call]
            return added
        return native_ops.add_low_rank(x, y, self.factors, shares)


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, term: LearningPointers, counts: Sequence[int]
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.term, ctx.counts = term, counts
        ctx.mark_dirty(y)
        return native_ops.add_low_rank(x, y, term.factors, counts)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None]:
        # Those of the factors are added where they gather.
        (x,) = ctx.saved_tensors
        places = ctx.term.factors, ctx.term.gradient
        return native_ops.low_rank_back(x, dy, *places, ctx.counts), dy, None, None


class LearningAttention(RaggedAttention):
    """Attention straight on the line; only the input is kept."""

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        assert self.states is None, "who learns keeps no cache"
        stretches = self._stretches[self.is_narrow(layer)]
        line = self.specs[layer], self.packing.positions, stretches
        seen: Tensor = _Attended.apply(heads, *line)  # type: ignore[no-untyped-call]
        return seen


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: RMSNorm) -> Tensor:
        ctx.save_for_backward(x)
        ctx.norm = norm
        return native_ops.normalize(x, norm)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return native_ops.normalize_back(x, ctx.norm, dy), None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return native_ops.swiglu(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return native_ops.swiglu_back(x, dy)


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, heads: Tensor, spec: AttentionSpec, positions: Tensor, stretches: np.ndarray
    ) -> Tensor:
        ctx.save_for_backward(heads)
        ctx.line = spec, positions, stretches
        border = heads.shape[1] - spec.kv_heads
        rotated = native_ops.rope(heads[:, :border], spec, positions)
        return native_ops.attention(rotated, heads[:, border:], stretches, spec)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        (heads,) = ctx.saved_tensors
        spec, positions, stretches = ctx.line
        border = heads.shape[1] - spec.kv_heads
        turned = native_ops.rope(heads[:, :border], spec, positions)
        gradient = torch.empty_like(heads)
        line = turned, heads[:, border:], stretches, spec
        d_turned = native_ops.attention_back(*line, dy, gradient[:, border:])
        native_ops.rope_back(heads[:, :border], spec, positions, d_turned, gradient[:, :border])
        return gradient, None, None, None


class _OnFloats(TorchBackend):
    """A back end for float32 on a CPU, where the library is."""

    speed = 1
    is_learning: ClassVar[bool]

    @classmethod
    def suits(cls, device: torch.device, dtype: torch.dtype, *, learns: bool) -> bool:
        is_plain = device.type == "cpu" and dtype == torch.float32
        return is_plain and learns == cls.is_learning and native_ops.library() is not None


@back_ends.register("native")
@dataclass(frozen=True)
class NativeBackend(_OnFloats):
    """Computes answers."""

    bank, cache, attention, is_learning = AddressBank, RaggedCache, RaggedAttention, False

    @classmethod
    def checks(cls) -> Iterator[CheckResult]:
        library, why_not = native_ops.find_library()
        if library is not None:
            yield "ok", f"compiled passes, version {digest()}"
        else:
            reason = " ".join(why_not.split())
            yield "warn", f"no compiled passes ({reason}), so torch does their work, more slowly"

    def normalize(self, x: Tensor, norm: RMSNorm) -> Tensor:
        return native_ops.normalize(x, norm)

    def gated(
        self, y: Tensor, activation: Activation, term: LowRankTerm | None, x: Tensor, shares: Shares
    ) -> Tensor:
        if activation is not F.silu:
            return super().gated(y, activation, term, x, shares)
        if isinstance(term, Pointers) and isinstance(shares, Sequence):  # one pass
            return native_ops.add_low_rank(x, y, term, shares, is_gated=True)
        return native_ops.swiglu(y if term is None else term.add_to(y, x, shares))


@back_ends.register("native, learning")
@dataclass(frozen=True)
class NativeLearning(_OnFloats):
    """Computes lessons and their gradients."""

    learners, attention, is_learning = VectorLearners, LearningAttention, True

    def normalize(self, x: Tensor, norm: RMSNorm) -> Tensor:
        normed: Tensor = _Normed.apply(x, norm)  # type: ignore[no-untyped-call]
        return normed

    def gated(
        self, y: Tensor, activation: Activation, term: LowRankTerm | None, x: Tensor, shares: Shares
    ) -> Tensor:
        if activation is not F.silu:
            return super().gated(y, activation, term, x, shares)
        y = y if term is None else term.add_to(y, x, shares)
        gated: Tensor = _Gated.apply(y)  # type: ignore[no-untyped-call]
        return gated
