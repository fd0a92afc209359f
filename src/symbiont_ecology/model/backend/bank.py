"""The slot bank: every organelle's LoRA factors, side by side, so that one product serves them all.

A site is a group of linear modules that read the same input (q, k and v; gate and up; or one module
alone). For torch, adapters stand in an arena: a row holds, site after site, A of all members
``(members · rank, d_in)`` and Bᵀ ``(rank, d_out)`` of each. The first row is all zeros and stands
for the bare host. The scaling is folded into Bᵀ. Stacked LoRA as in S-LoRA (arXiv:2311.03285).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.errors import AdapterError, HostError
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.model.backend.lowrank import (
    Adapters,
    Factors,
    Shares,
    Site,
    Tiling,
    tile_rows,
)


@dataclass(frozen=True)
class _Place:
    """Place of one site in an arena row: offsets and sizes in elements."""

    a_start: int
    b_starts: tuple[int | None, ...]  # None for a member without adapter
    d_in: int
    d_outs: tuple[int, ...]


class Arrangement:
    """Place of each parameter of an adapter of at most ``rank`` in an arena row of ``size``
    elements."""

    def __init__(self, sites: Sequence[Site], layout: AdapterLayout, rank: int) -> None:
        self.sites, self.layout, self.rank, self.size = sites, layout, rank, 0
        adapted = {name for name, _, _ in layout.modules}
        self._starts: dict[str, tuple[int, int]] = {}  # of A and of Bᵀ
        self._places = [self._arrange(site, adapted) for site in sites]
        self._indices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def laid(self, weights: AdapterWeights) -> np.ndarray:
        """Return an arena row ``(size,)`` with this adapter, scaling in Bᵀ; smaller ranks are
        padded with zeros."""
        index, is_b = self._index(weights.rank)
        row = np.zeros(self.size, dtype=np.float32)
        vector = weights.vector
        if weights.scaling != 1.0:
            vector = np.where(is_b, vector * np.float32(weights.scaling), vector)
        row[index] = vector
        return row

    def collected(self, row: Tensor, weights: AdapterWeights) -> Tensor:
        """Return the gradient of an adapter's vector, given that of the arena row in which it was
        laid."""
        index, is_b = (torch.from_numpy(part).to(row.device) for part in self._index(weights.rank))
        gradient = row.index_select(0, index)
        if weights.scaling != 1.0:
            gradient = torch.where(is_b, gradient * weights.scaling, gradient)
        return gradient

    def factors(self, block: Tensor) -> tuple[Factors | None, ...]:
        """Return the factors in arena rows ``block (owners, size)``, as views of it."""
        return tuple(None if place is None else self._view(place, block) for place in self._places)

    def _view(self, place: _Place, block: Tensor) -> Factors:
        """Return the factors of one site as views of arena rows ``(owners, size)``."""

        def strided(start: int, rows: int, columns: int) -> Tensor:
            """Return a matrix per owner, ``(owners, rows, columns)``."""
            strides = block.stride(0), columns, 1
            size = len(block), rows, columns
            return block.as_strided(size, strides, block.storage_offset() + start)

        members = sum(start is not None for start in place.b_starts)
        a = strided(place.a_start, members * self.rank, place.d_in)
        b = tuple(
            None if start is None else strided(start, self.rank, d_out)
            for start, d_out in zip(place.b_starts, place.d_outs, strict=True)
        )
        return Factors(a, b, place.d_outs)

    def _arrange(self, site: Site, adapted: set[str]) -> _Place | None:
        """Gives one site its place behind what is there already; None without any adapter."""
        are_adapted = [name in adapted for name, _, _ in site]
        d_in = site[0][1]
        d_outs = tuple(d_out for _, _, d_out in site)
        a_start = self.size
        b_start = self.size + sum(are_adapted) * self.rank * d_in
        a = a_start
        b_starts = list[int | None]()
        for is_adapted, (name, _, d_out) in zip(are_adapted, site, strict=True):
            b_starts.append(b_start if is_adapted else None)
            if is_adapted:
                self._starts[name] = (a, b_start)
                a, b_start = a + self.rank * d_in, b_start + self.rank * d_out
        self.size = b_start
        return _Place(a_start, tuple(b_starts), d_in, d_outs) if any(are_adapted) else None

    def _index(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where each parameter of a rank-``rank`` adapter goes in an arena row, and whether
        it is of Bᵀ."""
        if rank not in self._indices:
            index = np.empty(self.layout.size(rank), dtype=np.int64)
            is_b = np.zeros(self.layout.size(rank), dtype=bool)
            for name, a, b, d_in, d_out in self.layout.blocks(rank):
                a_start, b_start = self._starts[name]
                index[a] = a_start + np.arange(rank * d_in)
                index[b] = b_start + np.arange(rank * d_out)
                is_b[b] = True
            self._indices[rank] = (index, is_b)
        return self._indices[rank]


class SlotBank:
    """The factors of ``slots`` adapters of at most ``rank``, for torch on one device. The arena is
    made when an adapter first answers.

    Raises:
        AdapterError: an adapter of a larger rank or of another layout is placed.
        HostError: there is no memory for so many slots.
    """

    def __init__(
        self, arrangement: Arrangement, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._arrangement, self._device, self._dtype = arrangement, device, dtype
        self._held: list[AdapterWeights | None] = [None] * slots
        self._arena: Tensor | None = None

    def held(self, slot: int) -> AdapterWeights | None:
        """Return the very value that was placed in a slot."""
        return self._held[slot]

    def place(self, slot: int, weights: AdapterWeights | None) -> None:
        """Puts an adapter into a slot; None empties the slot, which is then the bare host.

        The adapter may be read where it lies, so its numbers must not change.
        """
        if weights is self._held[slot]:
            return
        if weights is not None:
            self.check(weights)
        self._held[slot] = weights
        if self._arena is not None:
            self._lay(slot, self._arena)

    def check(self, weights: AdapterWeights) -> None:
        """Refuses what does not fit this bank."""
        layout, rank = self._arrangement.layout, self._arrangement.rank
        if weights.rank > rank:
            raise AdapterError(
                f"expected an adapter of rank at most {rank}, got rank {weights.rank}: "
                f"load the host with rank={weights.rank}"
            )
        if weights.layout is not layout and weights.layout != layout:
            raise AdapterError("expected an adapter of this host, got one of other modules")

    def gather(self, owners: Sequence[int]) -> Adapters:
        """Return the factors of these slots, in this order, for tokens that stand owner after
        owner.

        Views where the slots are consecutive.
        """
        if all(slot == HOST_SLOT for slot in owners):
            return (None,) * len(self._arrangement.sites)
        if self._arena is None:
            self._arena = self._new_arena()
        low = owners[0] - HOST_SLOT
        if list(owners) == list(range(owners[0], owners[0] + len(owners))):
            block = self._arena[low : low + len(owners)]
        else:
            rows = torch.tensor(owners, device=self._device) - HOST_SLOT
            block = self._arena.index_select(0, rows)
        return self._arrangement.factors(block)

    def in_tiles(self, slots: Sequence[int]) -> tuple[Adapters, Tiling]:
        """Return the factors for rows of one token each that belong to these slots (ascending), as
        torch takes them."""
        tiling = tile_rows(slots, self._device)
        return SlotBank.gather(self, tiling.slots), tiling

    def for_step(self, slots: Sequence[int]) -> tuple[Adapters, Shares]:
        """Return the same as this bank's back end takes them."""
        return self.in_tiles(slots)

    def _lay(self, slot: int, arena: Tensor) -> None:
        """Copies what a slot holds into the arena."""
        weights = self._held[slot]
        if weights is None:
            arena[slot + 1].zero_()
        else:
            arena[slot + 1].copy_(torch.from_numpy(self._arrangement.laid(weights)))

    def _new_arena(self) -> Tensor:
        """Return the arena with all that is placed."""
        slots = len(self._held)
        size = self._arrangement.size
        try:
            with torch.inference_mode(False):  # it outlives the call
                arena = torch.zeros(slots + 1, size, device=self._device, dtype=self._dtype)
        except RuntimeError as error:  # torch's word for no memory, on the CPU too
            room = (slots + 1) * size * self._dtype.itemsize / 1e9
            raise HostError(
                f"expected {room:.1f} GB for {slots} slots of rank {self._arrangement.rank}, "
                "found less: lower slots or rank"
            ) from error
        for slot, weights in enumerate(self._held):
            if weights is not None:
                self._lay(slot, arena)
        return arena


class Learners:
    """Adapters of one layout that learn on a host with these ``sites``, by their number in
    ``weights``; ``device`` and ``dtype`` are the host's."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        layout: AdapterLayout,
        weights: Sequence[AdapterWeights],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.weights = weights
        self._arrangement = arrangement_of(sites, layout, max(one.rank for one in weights))
        arena = np.stack([self._arrangement.laid(one) for one in weights])
        self._factors = torch.from_numpy(arena).to(device, dtype)
        self._gradients = torch.zeros(arena.shape, device=device)

    def adapters(self, owners: Sequence[int]) -> Adapters:
        """Return the terms of these owners, who are consecutive; a backward pass adds to their
        gradients."""
        rows = slice(owners[0], owners[-1] + 1)
        terms = self._arrangement.factors(self._factors[rows])
        slopes = self._arrangement.factors(self._gradients[rows])
        pairs = zip(terms, slopes, strict=True)
        return tuple(term and replace(term, gradient=slope) for term, slope in pairs)

    def gradients(self) -> Iterator[Tensor]:
        """Return the gradient of each adapter's vector, one after the other."""
        yield from map(self._arrangement.collected, self._gradients, self.weights)


@lru_cache(maxsize=16)
def arrangement_of(sites: tuple[Site, ...], layout: AdapterLayout, rank: int) -> Arrangement:
    """Return the places of learners' parameters."""
    return Arrangement(sites, layout, rank)
