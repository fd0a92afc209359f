"""The slot bank: every organelle's LoRA factors in one arena, so that one product serves them all.

A site is a group of linear modules that read the same input (q, k and v; gate and up; or one module
alone). An arena row holds, site after site, A of all members ``(members · rank, d_in)`` and Bᵀ, either as
one block-diagonal ``(members · rank, Σ d_out)``, which makes decoding one product instead of three, or
member after member. Placing an adapter writes one row; retiring one is free. The first row is all zeros
and stands for the bare host, so host rows may share a batch with slots. The scaling is folded into Bᵀ.
Stacked LoRA as in S-LoRA (arXiv:2311.03285).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.errors import AdapterError, HostError
from symbiont_ecology.host.lowrank import Factors
from symbiont_ecology.types import HOST_SLOT
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights

Site = tuple[tuple[str, int, int], ...]
"""Modules ``(name, d_in, d_out)`` that read one input, in the order of their outputs."""

LARGEST_BLOCK_DIAGONAL = 16384
"""Numbers up to which Bᵀ is stored block-diagonal: beyond it the zeros cost more than the calls."""


@dataclass(frozen=True)
class Adapters:
    """Factors of some owners: one entry per site, None where a site has no adapter."""

    sites: tuple[Factors | None, ...]

    def dropping(self, dropout: Callable[[int, Tensor], Tensor] | None) -> Adapters:
        """The same with dropout on their inputs (``dropout.Dropout``)."""
        if dropout is None:
            return self
        sites = enumerate(self.sites)
        return Adapters(tuple(one and replace(one, dropped=partial(dropout, site)) for site, one in sites))

    def perturbed(self, tracer: Callable[[int, Tensor, Tensor], Tensor] | None) -> Adapters:
        """The same with noise between A and B (``tracing.Tracer``)."""
        if tracer is None:
            return self
        sites = enumerate(self.sites)
        return Adapters(tuple(one and replace(one, perturbed=partial(tracer, site)) for site, one in sites))


@dataclass(frozen=True)
class _Place:
    """Where one site lies in an arena row: offsets and sizes in elements."""

    a_start: int
    b_starts: tuple[int | None, ...]
    b_stride: int | None  # between two rank rows of block-diagonal Bᵀ; None when members stand apart
    adapted: int  # members with an adapter
    d_in: int
    d_outs: tuple[int, ...]


class Arrangement:
    """Where each parameter of an adapter of at most ``rank`` lies in an arena row of ``size`` elements.

    ``largest`` is up to how many numbers Bᵀ of a site is block-diagonal.
    """

    def __init__(
        self, sites: Sequence[Site], layout: AdapterLayout, rank: int, largest: int = LARGEST_BLOCK_DIAGONAL
    ) -> None:
        self.layout, self.rank, self.size = layout, rank, 0
        adapted = {name for name, _, _ in layout.modules}
        self._places = [self._arrange(site, adapted, largest) for site in sites]
        self._starts = _module_starts(sites, self._places, rank)
        self._indices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def laid(self, weights: AdapterWeights) -> np.ndarray:
        """An arena row ``(size,)`` with this adapter, scaling in Bᵀ; smaller ranks are padded with zeros."""
        index, is_b = self._index(weights.rank)
        row = np.zeros(self.size, dtype=np.float32)
        if weights.scaling == 1.0:
            row[index] = weights.vector
        else:
            row[index] = np.where(is_b, weights.vector * np.float32(weights.scaling), weights.vector)
        return row

    def collected(self, row: Tensor, weights: AdapterWeights) -> Tensor:
        """The gradient of an adapter's vector, given that of the arena row in which it was laid."""
        index, is_b = (torch.from_numpy(one).to(row.device) for one in self._index(weights.rank))
        gradient = row.index_select(0, index)
        return gradient if weights.scaling == 1.0 else torch.where(is_b, gradient * weights.scaling, gradient)

    def factors(self, block: Tensor, gradient: Tensor | None = None) -> Adapters:
        """The factors in arena rows ``block (owners, size)``, as views of it (and of their gradients)."""
        sites: list[Factors | None] = []
        for place in self._places:
            if place is None:
                sites.append(None)
                continue
            view = _view(place, block, self.rank)
            buffers = None if gradient is None else _view(place, gradient, self.rank)
            sites.append(replace(view, gradient=buffers))
        return Adapters(tuple(sites))

    def _arrange(self, site: Site, adapted: set[str], largest: int) -> _Place | None:
        """Gives one site its place behind what is there already; None without any adapter."""
        has = [name in adapted for name, _, _ in site]
        count, d_in, total = sum(has), site[0][1], sum(d_out for _, _, d_out in site)
        if not count:
            return None
        a_start, start = self.size, self.size + count * self.rank * d_in
        is_whole = len(site) > 1 and count * self.rank * total <= largest
        starts: list[int | None] = []
        seen = column = 0
        for present, (_, _, d_out) in zip(has, site, strict=True):
            starts.append(
                (start + seen * self.rank * total + column if is_whole else start) if present else None
            )
            if present and not is_whole:
                start += self.rank * d_out
            seen, column = seen + present, column + d_out
        self.size = start + count * self.rank * total if is_whole else start
        d_outs = tuple(d_out for _, _, d_out in site)
        return _Place(a_start, tuple(starts), total if is_whole else None, count, d_in, d_outs)

    def _index(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each parameter of a rank-``rank`` adapter goes in an arena row, and whether it is of Bᵀ."""
        if rank not in self._indices:
            index = np.empty(self.layout.size(rank), dtype=np.int64)
            is_b = np.zeros(self.layout.size(rank), dtype=bool)
            for name, a, b, d_in, d_out in self.layout.blocks(rank):
                a_start, b_start, stride = self._starts[name]
                index[a] = a_start + np.arange(rank * d_in)
                index[b] = (b_start + stride * np.arange(rank)[:, None] + np.arange(d_out)).reshape(-1)
                is_b[b] = True
            self._indices[rank] = (index, is_b)
        return self._indices[rank]


class SlotBank:
    """Stacked factors of ``slots`` adapters of at most ``rank`` on one device.

    Raises:
        AdapterError: an adapter of a larger rank or of another layout is placed.
        HostError: there is no memory for so many slots.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        layout: AdapterLayout,
        slots: int,
        rank: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.layout, self.slots, self.rank = layout, slots, rank
        self._arrangement = Arrangement(sites, layout, rank)
        self._sites = len(sites)
        try:
            self._arena = torch.zeros(slots + 1, self._arrangement.size, device=device, dtype=dtype)
        except RuntimeError as error:  # torch's word for no memory, on the CPU too
            room = (slots + 1) * self._arrangement.size * dtype.itemsize / 1e9
            raise HostError(
                f"expected {room:.1f} GB for {slots} slots of rank {rank}, found less: lower slots or rank"
            ) from error
        self._held: list[AdapterWeights | None] = [None] * slots

    def held(self, slot: int) -> AdapterWeights | None:
        """The very value that was placed in a slot."""
        return self._held[slot]

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Copies an adapter into a slot; free when the slot already holds this object."""
        if self._held[slot] is weights:
            return
        self.check(weights)
        self._arena[slot + 1].copy_(torch.from_numpy(self._arrangement.laid(weights)))
        self._held[slot] = weights

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        self._arena[slot + 1].zero_()
        self._held[slot] = None

    def check(self, weights: AdapterWeights) -> None:
        """Refuses what does not fit this bank."""
        if weights.rank > self.rank:
            raise AdapterError(
                f"expected an adapter of rank at most {self.rank}, got rank {weights.rank}: "
                f"load the host with rank={weights.rank}"
            )
        if weights.layout is not self.layout and weights.layout != self.layout:
            raise AdapterError(
                f"expected an adapter of this host's {len(self.layout.modules)} modules, got one made for "
                f"{len(weights.layout.modules)} other ones: attach it to the host that it was made on"
            )

    def gather(self, slots: Sequence[int]) -> Adapters:
        """The factors of these slots, in this order (views where the slots are consecutive)."""
        if all(slot == HOST_SLOT for slot in slots):
            return bare(self._sites)
        low = slots[0] - HOST_SLOT
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            block = self._arena[low : low + len(slots)]
        else:
            rows = torch.tensor(slots, device=self._arena.device) - HOST_SLOT
            block = self._arena.index_select(0, rows)
        return self._arrangement.factors(block)


def bare(sites: int) -> Adapters:
    """No adapter anywhere: the host alone."""
    return Adapters((None,) * sites)


def _module_starts(
    sites: Sequence[Site], places: Sequence[_Place | None], rank: int
) -> dict[str, tuple[int, int, int]]:
    """``{module: (start of A, start of Bᵀ, stride of Bᵀ)}`` for every adapted module."""
    starts: dict[str, tuple[int, int, int]] = {}
    for site, place in zip(sites, places, strict=True):
        if place is None:
            continue
        a_start = place.a_start
        for (name, d_in, d_out), b_start in zip(site, place.b_starts, strict=True):
            if b_start is not None:
                starts[name] = (a_start, b_start, place.b_stride or d_out)
                a_start += rank * d_in
    return starts


def _view(place: _Place, block: Tensor, rank: int) -> Factors:
    """The factors of one site as views of arena rows ``(owners, size)``."""
    owners, pitch, origin = block.shape[0], block.stride(0), block.storage_offset()

    def strided(start: int, rows: int, columns: int, stride: int) -> Tensor:
        """A matrix per owner, ``(owners, rows, columns)``."""
        return block.as_strided((owners, rows, columns), (pitch, stride, 1), origin + start)

    a = strided(place.a_start, place.adapted * rank, place.d_in, place.d_in)
    b = tuple(
        None if start is None else strided(start, rank, d_out, place.b_stride or d_out)
        for start, d_out in zip(place.b_starts, place.d_outs, strict=True)
    )
    if place.b_stride is None:
        whole = b[0] if len(b) == 1 else None
    else:
        whole = strided(
            place.a_start + place.adapted * rank * place.d_in,
            place.adapted * rank,
            place.b_stride,
            place.b_stride,
        )
    return Factors(a, b, place.d_outs, whole)
