"""The slot bank: every organelle's LoRA factors, side by side, so that one product serves them all.

A site is a group of linear modules that read the same input (q, k and v; gate and up; or one module
alone). Where the compiled loops serve, adapters are read where they lie, and placing one notes its
address. For torch they stand in an arena: a row holds, site after site, A of all members
``(members · rank, d_in)`` and Bᵀ ``(rank, d_out)`` of each. The first row is all zeros and stands
for the bare host. The scaling is folded into Bᵀ. Stacked LoRA as in S-LoRA (arXiv:2311.03285).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.errors import AdapterError, HostError
from symbiont_ecology.host import native
from symbiont_ecology.host.lowrank import Factors
from symbiont_ecology.host.native import Addresses, Pointers
from symbiont_ecology.types import HOST_SLOT
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights

Site = tuple[tuple[str, int, int], ...]
"""Modules ``(name, d_in, d_out)`` that read one input, in the order of their outputs."""


@dataclass(frozen=True)
class Adapters:
    """Factors of some owners: one entry per site, None where a site has no adapter."""

    sites: tuple[Factors | Pointers | None, ...]

    def dropping(self, dropout: Callable[[int, Tensor], Tensor] | None) -> Adapters:
        """The same with dropout on their inputs (``dropout.Dropout``)."""
        if dropout is None:
            return self
        return self._changed(lambda site, one: replace(one, dropped=partial(dropout, site)))

    def perturbed(self, tracer: Callable[[int, Tensor, Tensor], Tensor] | None) -> Adapters:
        """The same with noise between A and B (``tracing.Tracer``)."""
        if tracer is None:
            return self
        return self._changed(lambda site, one: replace(one, perturbed=partial(tracer, site)))

    def _changed(self, change: Callable[[int, Factors], Factors]) -> Adapters:
        changed = list[Factors | None]()
        for site, one in enumerate(self.sites):
            assert not isinstance(one, Pointers), "compiled passes know neither dropout nor noise"
            changed.append(None if one is None else change(site, one))
        return Adapters(tuple(changed))


@dataclass(frozen=True)
class _Place:
    """Where one site lies in an arena row: offsets and sizes in elements."""

    a_start: int
    b_starts: tuple[int | None, ...]  # None for a member without adapter
    d_in: int
    d_outs: tuple[int, ...]


class Arrangement:
    """Where each parameter of an adapter of at most ``rank`` lies in an arena row of ``size``
    elements."""

    def __init__(self, sites: Sequence[Site], layout: AdapterLayout, rank: int) -> None:
        self.layout, self.rank, self.size = layout, rank, 0
        adapted = {name for name, _, _ in layout.modules}
        self._starts: dict[str, tuple[int, int]] = {}  # of A and of Bᵀ
        self._places = [self._arrange(site, adapted) for site in sites]
        self._indices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def laid(self, weights: AdapterWeights) -> np.ndarray:
        """An arena row ``(size,)`` with this adapter, scaling in Bᵀ; smaller ranks are padded with
        zeros."""
        index, is_b = self._index(weights.rank)
        row = np.zeros(self.size, dtype=np.float32)
        if weights.scaling == 1.0:
            row[index] = weights.vector
        else:
            row[index] = np.where(
                is_b, weights.vector * np.float32(weights.scaling), weights.vector
            )
        return row

    def collected(self, row: Tensor, weights: AdapterWeights) -> Tensor:
        """The gradient of an adapter's vector, given that of the arena row in which it was laid."""
        index, is_b = (torch.from_numpy(one).to(row.device) for one in self._index(weights.rank))
        gradient = row.index_select(0, index)
        return (
            gradient
            if weights.scaling == 1.0
            else torch.where(is_b, gradient * weights.scaling, gradient)
        )

    def factors(self, block: Tensor, gradient: Tensor | None = None) -> list[Factors | None]:
        """The factors in arena rows ``block (owners, size)``, as views of it (and of their
        gradients)."""
        sites: list[Factors | None] = []
        for place in self._places:
            if place is None:
                sites.append(None)
                continue
            view = _view(place, block, self.rank)
            buffers = None if gradient is None else _view(place, gradient, self.rank)
            sites.append(replace(view, gradient=buffers))
        return sites

    def _arrange(self, site: Site, adapted: set[str]) -> _Place | None:
        """Gives one site its place behind what is there already; None without any adapter."""
        has = [name in adapted for name, _, _ in site]
        d_in, d_outs = site[0][1], tuple(d_out for _, _, d_out in site)
        a_start, b_start = self.size, self.size + sum(has) * self.rank * d_in
        a, b_starts = a_start, list[int | None]()
        for present, (name, _, d_out) in zip(has, site, strict=True):
            b_starts.append(b_start if present else None)
            if present:
                self._starts[name] = (a, b_start)
                a, b_start = a + self.rank * d_in, b_start + self.rank * d_out
        self.size = b_start
        return _Place(a_start, tuple(b_starts), d_in, d_outs) if any(has) else None

    def _index(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each parameter of a rank-``rank`` adapter goes in an arena row, and whether it is
        of Bᵀ."""
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
    """The factors of ``slots`` adapters of at most ``rank``, for one device.

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
        self._sites, self._device, self._dtype = sites, device, dtype
        self._held: list[AdapterWeights | None] = [None] * slots
        self._addresses = (
            Addresses(sites, layout, slots) if native.is_usable(device, dtype) else None
        )
        self._arrangement = Arrangement(sites, layout, rank)
        self._laid: list[AdapterWeights | None] = [None] * slots  # what stands in the arena
        self._arena: Tensor | None = None
        if self._addresses is None:
            self._arena = self._new_arena()

    def held(self, slot: int) -> AdapterWeights | None:
        """The very value that was placed in a slot."""
        return self._held[slot]

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Puts an adapter into a slot. It is read where it lies, so its numbers must not change."""
        if self._held[slot] is weights:
            return
        self.check(weights)
        self._held[slot] = weights
        if self._addresses is None:
            self._lay([slot])
        else:
            self._addresses.place(slot, weights)

    def clear(self, slot: int) -> None:
        """Empties a slot: it is the bare host."""
        self._held[slot] = None
        if self._addresses is not None:
            self._addresses.place(slot, None)
        if self._arena is not None:
            self._lay([slot])

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

    @property
    def needs_tiles(self) -> bool:
        """Whether what is read one token at a time has to come in tiles."""
        return self._addresses is None

    def gather(self, owners: Sequence[int]) -> Adapters:
        """The factors of these slots, in this order, for tokens that stand owner after owner."""
        if self._addresses is None:
            return self.gather_tiles(owners)
        held = tuple(self._held[slot] for slot in owners if slot != HOST_SLOT)
        return Adapters(self._addresses.of(owners, held))

    def gather_tiles(self, slots: Sequence[int]) -> Adapters:
        """The factors of these slots as torch takes them (views where the slots are
        consecutive)."""
        if all(slot == HOST_SLOT for slot in slots):
            return bare(len(self._sites))
        self._lay(slots)
        assert self._arena is not None
        low = slots[0] - HOST_SLOT
        if list(slots) == list(range(slots[0], slots[0] + len(slots))):
            block = self._arena[low : low + len(slots)]
        else:
            rows = torch.tensor(slots, device=self._device) - HOST_SLOT
            block = self._arena.index_select(0, rows)
        return Adapters(tuple(self._arrangement.factors(block)))

    def _lay(self, slots: Iterable[int]) -> None:
        """Copies what these slots hold into the arena, unless it is there."""
        if self._arena is None:
            self._arena = self._new_arena()
        for slot in slots:
            held = None if slot == HOST_SLOT else self._held[slot]
            if slot == HOST_SLOT or self._laid[slot] is held:
                continue
            if held is None:
                self._arena[slot + 1].zero_()
            else:
                self._arena[slot + 1].copy_(torch.from_numpy(self._arrangement.laid(held)))
            self._laid[slot] = held

    def _new_arena(self) -> Tensor:
        size = self.slots + 1, self._arrangement.size
        try:
            with torch.inference_mode(False):  # it outlives the call
                return torch.zeros(size, device=self._device, dtype=self._dtype)
        except RuntimeError as error:  # torch's word for no memory, on the CPU too
            room = size[0] * size[1] * self._dtype.itemsize / 1e9
            raise HostError(
                f"expected {room:.1f} GB for {self.slots} slots of rank {self.rank}, found less: "
                "lower slots or rank"
            ) from error


def bare(sites: int) -> Adapters:
    """No adapter anywhere: the host alone."""
    return Adapters((None,) * sites)


def _view(place: _Place, block: Tensor, rank: int) -> Factors:
    """The factors of one site as views of arena rows ``(owners, size)``."""

    def strided(start: int, rows: int, columns: int) -> Tensor:
        """A matrix per owner, ``(owners, rows, columns)``."""
        origin = block.storage_offset() + start
        return block.as_strided((len(block), rows, columns), (block.stride(0), columns, 1), origin)

    adapted = sum(start is not None for start in place.b_starts)
    a = strided(place.a_start, adapted * rank, place.d_in)
    b = tuple(
        None if start is None else strided(start, rank, d_out)
        for start, d_out in zip(place.b_starts, place.d_outs, strict=True)
    )
    return Factors(a, b, place.d_outs)
