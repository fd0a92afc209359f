"""The compiled back end: adapters are read where they lie, rows are as long as they are.

It serves float32 hosts on a CPU when no gradients are wanted. ``backend_for`` chooses it. Where
there was no compiler at installation, and for every other host, torch computes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from symbiont_ecology.host.backend import passes
from symbiont_ecology.host.backend.attention import AttentionSpec, PackedAttention, RMSNorm
from symbiont_ecology.host.backend.bank import Arrangement, SlotBank
from symbiont_ecology.host.backend.lowrank import Adapters, LowRankTerm, Shares, Site
from symbiont_ecology.host.backend.passes import Pointers
from symbiont_ecology.host.backend.torch_backend import Activation, Cache, TorchBackend
from symbiont_ecology.host.packing import Packing
from symbiont_ecology.types import HOST_SLOT
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights


def backend_for(device: torch.device, dtype: torch.dtype) -> TorchBackend:
    """The fastest back end for a host with such weights, as long as no gradients are wanted."""
    return CompiledBackend() if passes.suit(device, dtype) else TorchBackend()


MORE_ROWS, MOST_SPARE = 8, 2
"""Entries by which a cache grows, and how many times what its rows need it may hold."""


class RaggedCache(Cache):
    """Every row at its own length, in the entry that it got first."""

    def __init__(self, specs: Sequence[AttentionSpec], states: Tensor, lengths: np.ndarray) -> None:
        super().__init__(specs, states, lengths)
        self._lengths, self._entries = lengths.astype(np.int64), np.arange(len(lengths))

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """As ``Cache``."""
        spec, states = self.specs[layer], self.states[layer]
        return passes.attend(heads, spec, states, self._entries, self._lengths)

    def advance(self) -> None:
        """As ``Cache``."""
        self._lengths = self._lengths + 1

    def keep(self, rows: Tensor) -> None:
        """As ``Cache``: the others are not looked at any more."""
        indices = rows.numpy()
        self._lengths, self._entries = self._lengths[indices], self._entries[indices]

    def lay(self, lengths: np.ndarray, room: int) -> None:
        """Behind its rows, each token of prompts with these ``lengths`` becomes a row: those of one
        prompt share an entry, and a token sees what stands in front of it. ``keep`` the last of
        each prompt once all layers have seen them. No row will have more than ``room`` tokens."""
        entries = self._free_entries(len(lengths), room)
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._entries = np.concatenate([self._entries, np.repeat(entries, lengths)])
        self._lengths = np.concatenate([self._lengths, np.arange(lengths.sum()) - first])

    def join(self, other: Self, room: int) -> None:
        """As ``Cache``: new rows take entries that are free."""
        entries, longest = self._free_entries(len(other._entries), room), other._lengths.max()
        source = other.states[:, :, other._entries, :, :longest]
        self.states[:, :, entries, :, :longest] = source
        self._entries = np.concatenate([self._entries, entries])
        self._lengths = np.concatenate([self._lengths, other._lengths])

    def _free_entries(self, count: int, room: int) -> np.ndarray:
        """Entries for so many more rows."""
        self._make_room(len(self._entries) + count, room)
        is_free = np.ones(self.states.shape[2], dtype=bool)
        is_free[self._entries] = False
        return np.flatnonzero(is_free)[:count]

    def _make_room(self, rows: int, room: int) -> None:
        """Another cache, if this one has no place for so many rows of so many tokens.

        It stays as long and as wide as it was unless that is much more than these rows need: then
        many short rows that left do not make a long one dear, and usual changes copy nothing.
        """
        layers, pair, entries, kv_heads, places, size = self.states.shape
        if rows <= entries and room <= places:
            return
        needed = -(-rows // MORE_ROWS) * MORE_ROWS
        entries, places = max(entries, needed), max(places, room)
        if entries * places > MOST_SPARE * needed * room:
            entries, places = needed, room
        longest = self._lengths.max()
        states = self.states.new_empty(layers, pair, entries, kv_heads, places, size)
        source = self.states[:, :, self._entries, :, :longest]
        states[:, :, : len(self._entries), :, :longest] = source
        self.states, self._entries = states, np.arange(len(self._entries))


class RaggedAttention(PackedAttention):
    """Straight on the line, every row as long as it is."""

    def attend(self, layer: int, heads: Tensor) -> Tensor:
        """As ``PackedAttention``."""
        spec, packing = self.specs[layer], self.packing
        border = heads.shape[1] - spec.kv_heads
        rotated = passes.rotate(heads[:, :border], spec, packing.positions)
        rotated, values = self.behind_kept(layer, rotated, heads[:, border:])
        if self.states is not None:
            passes.fill(self.states[layer], rotated, values, packing.pieces)
        is_last = self.is_narrow(layer)
        stretches = packing.stretches(is_ends=True) if is_last else self._stretches
        return passes.look(rotated, values, stretches, spec)

    @cached_property
    def _stretches(self) -> np.ndarray:
        return self.packing.stretches()


class AddressBank(SlotBank):
    """Notes where placed adapters lie, and points at them; torch's arena is made when something
    asks for tiles."""

    def __init__(
        self, arrangement: Arrangement, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(arrangement, slots, device, dtype, is_lazy=True)
        self._addresses = Addresses(tuple(arrangement.sites), arrangement.layout, slots)

    def place(self, slot: int, weights: AdapterWeights | None) -> None:
        """As ``SlotBank``."""
        if weights is self._held[slot]:
            return
        super().place(slot, weights)
        if weights is None:
            self._addresses.forget(slot)
        else:
            self._addresses.place(slot, weights.vector.ctypes.data, weights)

    def gather(self, owners: Sequence[int]) -> Adapters:
        """As ``SlotBank``."""
        held = [self._held[slot] for slot in owners if slot != HOST_SLOT]
        return Adapters(self._addresses.of(owners, held))

    def for_step(self, slots: Sequence[int]) -> tuple[Adapters, Shares]:
        """As ``SlotBank``, without tiles: loops over slots cost nothing here."""
        counts = Counter(slots)
        return self.gather(tuple(counts)), tuple(counts.values())


class Addresses:
    """Where the vectors of placed adapters lie, or others in the order of their layout."""

    def __init__(self, sites: tuple[Site, ...], layout: AdapterLayout, slots: int) -> None:
        # One more entry: the bare host, slot -1, is the last and has rank 0.
        self._ranks, self._bases = np.zeros((2, slots + 1), dtype=np.int64)
        self._scales = np.zeros(slots + 1, dtype=np.float32)
        self._counts, self._totals, table = _modules_of(sites, layout)
        self._d_ins, self._starts, self._widths, self._columns = table

    def place(self, slot: int, address: int, weights: AdapterWeights) -> None:
        """Notes where the numbers of an adapter lie, or of its gradient. They must live for as long
        as they are noted."""
        self._ranks[slot], self._scales[slot] = weights.rank, weights.scaling
        self._bases[slot] = address

    def forget(self, slot: int) -> None:
        """Nothing lies there any more."""
        self._ranks[slot] = 0

    def of(
        self, owners: Sequence[int], weights: Sequence[object] = ()
    ) -> tuple[Pointers | None, ...]:
        """Pointers for some slots, site by site, None where a site has no adapter. They keep
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
    """How many modules of each site carry adapters, the widths of the sites' outputs, and of those
    modules the input widths, where A begins at rank 1, output widths and columns, ``(4,
    modules)``."""
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


class CompiledBackend(TorchBackend):
    """What the compiled passes do instead of torch (see ``TorchBackend``)."""

    bank, cache = AddressBank, RaggedCache

    def kind_of_attention(self, packing: Packing) -> type[PackedAttention]:
        """As ``TorchBackend``."""
        return RaggedAttention

    def normalize(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """As ``TorchBackend``."""
        return passes.normalize(x, norm)

    def gated(
        self, y: Tensor, activation: Activation, term: LowRankTerm | None, x: Tensor, shares: Shares
    ) -> Tensor:
        """As ``TorchBackend``; one pass where it can be."""
        if activation is not F.silu:
            return super().gated(y, activation, term, x, shares)
        if isinstance(term, Pointers) and isinstance(shares, Sequence):
            return passes.add_low_rank(x, y, term, shares, is_gated=True)
        return passes.gate(y if term is None else term.add_to(y, x, shares))
