"""The slot bank: every organelle's LoRA factors, stacked, so that one product serves them all.

A site is a group of linear modules that read the same input (q, k and v; gate and up; or one module
alone). Per site the bank holds A ``(slots, members · rank, d_in)`` and Bᵀ, either one block-diagonal
``(slots, members · rank, Σ d_out)``, which makes decoding one product instead of three, or apart.
All of it lies in one flat arena ``(slots + 1, parameters)``: placing an adapter writes one row. The last
row is all zeros and stands for the bare host, so host rows may share a batch with slots.
The scaling is folded into Bᵀ. Design and measurements: stacked LoRA as in S-LoRA (arXiv:2311.03285).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.errors import AdapterError, HostError
from symbiont_ecology.types import HOST_SLOT
from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights

Site = tuple[tuple[str, int, int], ...]
"""Modules ``(name, d_in, d_out)`` that read one input, in the order of their outputs."""

_WIDEST_BLOCK_DIAGONAL = 4096
"""Σ d_out up to which Bᵀ is stored block-diagonal: beyond it the zeros cost more than the calls."""


@dataclass(frozen=True)
class Factors:
    """LoRA factors of one site for every tile of a batch.

    ``a`` is ``(tiles, members · rank, d_in)``; ``b[j]`` is ``(tiles, rank, d_out of member j)`` or None for
    a member without adapter (then it has no share of ``a``); ``whole_b``, when there is one, is
    ``(tiles, members · rank, Σ d_out)``.
    """

    a: Tensor
    b: tuple[Tensor | None, ...]
    whole_b: Tensor | None = None

    def part(self, low: int, high: int) -> Factors:
        """The factors of tiles ``low`` to ``high`` as views."""
        b = tuple(None if one is None else one[low:high] for one in self.b)
        return Factors(self.a[low:high], b, None if self.whole_b is None else self.whole_b[low:high])

    def members(self, low: int, high: int) -> Factors | None:
        """The factors of members ``low`` to ``high`` of the site; None when none of them has an adapter."""
        has = [one is not None for one in self.b]
        rank = self.a.shape[1] // sum(has)
        first, last = sum(has[:low]) * rank, sum(has[:high]) * rank
        return Factors(self.a[:, first:last], self.b[low:high]) if last > first else None


@dataclass(frozen=True)
class Adapters:
    """The factors of a batch: one entry per site, None where a site has no adapter."""

    tiles: int
    sites: tuple[Factors | None, ...]

    def part(self, low: int, high: int) -> Adapters:
        """The adapters of tiles ``low`` to ``high`` as views."""
        sites = tuple(None if site is None else site.part(low, high) for site in self.sites)
        return Adapters(high - low, sites)


@dataclass(frozen=True)
class _Place:
    """Where one site lives in an arena row: offsets and sizes in elements."""

    a_start: int
    b_starts: tuple[int | None, ...]
    b_stride: tuple[int, ...]  # elements between two rank rows of a member's Bᵀ
    adapted: int  # members with an adapter
    d_in: int
    d_outs: tuple[int, ...]
    whole_start: int | None


class SlotBank:
    """Stacked factors of ``slots`` adapters of at most ``rank`` on one device.

    Raises:
        AdapterError: an adapter of a larger rank or of another layout is placed.
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
        adapted = {name for name, _, _ in layout.modules}
        self._places, size = _arrange(sites, adapted, rank)
        try:
            self._arena = torch.zeros(slots + 1, size, device=device, dtype=dtype)
        except RuntimeError as error:  # torch's word for no memory, on the CPU too
            room = (slots + 1) * size * dtype.itemsize / 1e9
            raise HostError(
                f"expected {room:.1f} GB for {slots} slots of rank {rank}, found less: lower slots or rank"
            ) from error
        self._held: list[AdapterWeights | None] = [None] * slots
        self._starts = _module_starts(sites, self._places, rank)
        self._indices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def held(self, slot: int) -> AdapterWeights | None:
        """The very value that was placed in a slot."""
        return self._held[slot]

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Copies an adapter into a slot; free when the slot already holds this object."""
        if self._held[slot] is weights:
            return
        self.check(weights)
        index, is_b = self._index(weights.rank)
        row = np.zeros(self._arena.shape[1], dtype=np.float32)
        row[index] = np.where(is_b, weights.vector * np.float32(weights.scaling), weights.vector)
        self._arena[slot].copy_(torch.from_numpy(row))
        self._held[slot] = weights

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        self._arena[slot].zero_()
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

    def gather(self, tile_slots: Sequence[int]) -> Adapters:
        """The factors of a batch whose tiles belong to these slots (a view where slots are consecutive)."""
        if all(slot == HOST_SLOT for slot in tile_slots):
            return bare(len(self._places), len(tile_slots))
        rows = [self.slots if slot == HOST_SLOT else slot for slot in tile_slots]
        if rows == list(range(rows[0], rows[0] + len(rows))):
            block = self._arena[rows[0] : rows[0] + len(rows)]
        else:
            block = self._arena.index_select(0, torch.tensor(rows, device=self._arena.device))
        return Adapters(len(rows), tuple(_view(place, block, self.rank) for place in self._places))

    def _index(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Where each parameter of a rank-``rank`` adapter goes in an arena row, and whether it is of B."""
        if rank not in self._indices:
            index = np.empty(self.layout.size(rank), dtype=np.int64)
            is_b = np.zeros(self.layout.size(rank), dtype=bool)
            for name, a, b, d_in, d_out in self.layout.blocks(rank):
                a_start, b_start, b_stride = self._starts[name]
                index[a] = a_start + np.arange(rank * d_in)
                index[b] = (b_start + b_stride * np.arange(rank)[:, None] + np.arange(d_out)).reshape(-1)
                is_b[b] = True
            self._indices[rank] = (index, is_b)
        return self._indices[rank]


def bare(sites: int, tiles: int) -> Adapters:
    """No adapter anywhere: the host alone."""
    return Adapters(tiles, (None,) * sites)


def stack(
    sites: Sequence[Site],
    layout: AdapterLayout,
    vectors: Tensor,
    scaling: Tensor,
    rank: int,
    dtype: torch.dtype,
) -> Adapters:
    """Factors as differentiable views of ``vectors`` ``(tiles, layout.size(rank))``, scaled per tile.

    They are computed with in ``dtype``, the host's, whatever the vectors are held in.

    Splitting once keeps the backward pass to one concatenation, where slicing would cost one buffer of
    the size of all adapters per module.
    """
    sizes = [rank * width for _, d_in, d_out in layout.modules for width in (d_in, d_out)]
    pieces = iter(torch.split(vectors.to(dtype), sizes, dim=1))
    tiles = vectors.shape[0]
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, d_in, d_out in layout.modules:
        a, b = next(pieces).view(tiles, rank, d_in), next(pieces).view(tiles, rank, d_out)
        found[name] = (a, b * scaling.to(dtype)[:, None, None])
    result: list[Factors | None] = []
    for site in sites:
        a_parts = [found[name][0] for name, _, _ in site if name in found]
        b_parts = tuple(found[name][1] if name in found else None for name, _, _ in site)
        if a_parts:
            result.append(Factors(torch.cat(a_parts, dim=1) if len(a_parts) > 1 else a_parts[0], b_parts))
        else:
            result.append(None)
    return Adapters(tiles, tuple(result))


def project(
    x: Tensor, parts: Sequence[tuple[Tensor, Tensor | None]], factors: Factors | None
) -> list[Tensor]:
    """``x Wⱼᵀ + bⱼ + x Aᵀ Bⱼᵀ`` for every member j: ``(rows, time, d_in)`` to ``(rows, time, d_out)``."""
    outputs = [torch.nn.functional.linear(x, weight, bias) for weight, bias in parts]
    return outputs if factors is None else add_low_rank(x, outputs, factors)


def project_whole(x: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors | None) -> Tensor | None:
    """All members in one product, ``(rows, time, Σ d_out)``; None when the factors are kept apart.

    For inference only: it adds in place.
    """
    if factors is None:
        return torch.nn.functional.linear(x, weight, bias)
    if factors.whole_b is None:
        return None
    y = torch.nn.functional.linear(x, weight, bias)
    tiles = factors.a.shape[0]
    inner = torch.bmm(x.reshape(tiles, -1, x.shape[-1]), factors.a.transpose(1, 2))
    y.view(tiles, -1, y.shape[-1]).baddbmm_(inner, factors.whole_b)
    return y


def add_low_rank(x: Tensor, outputs: Sequence[Tensor], factors: Factors) -> list[Tensor]:
    """Adds each member's low-rank term to the host's own outputs (in place when no gradient is wanted)."""
    tiles, width = factors.a.shape[0], x.shape[-1]
    inner = torch.bmm(
        x.reshape(tiles, -1, width), factors.a.transpose(1, 2)
    )  # (tiles, height · time, members · r)
    adapted = sum(b is not None for b in factors.b)
    shares = iter(inner.chunk(adapted, dim=-1))
    in_place = not torch.is_grad_enabled()
    result: list[Tensor] = []
    for y, b in zip(outputs, factors.b, strict=True):
        if b is None:
            result.append(y)
            continue
        flat = y.reshape(tiles, -1, y.shape[-1])
        total = flat.baddbmm_(next(shares), b) if in_place else torch.baddbmm(flat, next(shares), b)
        result.append(total.view(y.shape))
    return result


def _arrange(sites: Sequence[Site], adapted: set[str], rank: int) -> tuple[list[_Place | None], int]:
    """Assigns offsets in an arena row, site after site; None for a site without any adapter."""
    places: list[_Place | None] = []
    size = 0
    for site in sites:
        has = [name in adapted for name, _, _ in site]
        count, d_in = sum(has), site[0][1]
        d_outs = tuple(d_out for _, _, d_out in site)
        if not count:
            places.append(None)
            continue
        a_start, b_start = size, size + count * rank * d_in
        is_whole = sum(d_outs) <= _WIDEST_BLOCK_DIAGONAL or len(site) == 1
        starts: list[int | None] = []
        strides: list[int] = []
        seen = column = 0
        end = b_start + count * rank * sum(d_outs) if is_whole else b_start
        for present, d_out in zip(has, d_outs, strict=True):
            strides.append(sum(d_outs) if is_whole else d_out)
            if not present:
                starts.append(None)
            elif is_whole:
                starts.append(b_start + seen * rank * sum(d_outs) + column)
            else:
                starts.append(end)
                end += rank * d_out
            seen, column = seen + present, column + d_out
        whole = b_start if is_whole else None
        places.append(_Place(a_start, tuple(starts), tuple(strides), count, d_in, d_outs, whole))
        size = end
    return places, size


def _module_starts(
    sites: Sequence[Site], places: Sequence[_Place | None], rank: int
) -> dict[str, tuple[int, int, int]]:
    """``{module: (start of A, start of Bᵀ, stride of Bᵀ)}`` for every adapted module."""
    starts: dict[str, tuple[int, int, int]] = {}
    for site, place in zip(sites, places, strict=True):
        if place is None:
            continue
        a_start = place.a_start
        for (name, d_in, _), b_start, stride in zip(site, place.b_starts, place.b_stride, strict=True):
            if b_start is not None:
                starts[name] = (a_start, b_start, stride)
                a_start += rank * d_in
    return starts


def _view(place: _Place | None, block: Tensor, rank: int) -> Factors | None:
    """The factors of one site as views of gathered arena rows ``(tiles, parameters)``."""
    if place is None:
        return None
    tiles, pitch = block.shape[0], block.stride(0)
    origin = block.storage_offset()

    def strided(start: int, rows: int, columns: int, stride: int) -> Tensor:
        return block.as_strided((tiles, rows, columns), (pitch, stride, 1), origin + start)

    a = strided(place.a_start, place.adapted * rank, place.d_in, place.d_in)
    b = tuple(
        None if start is None else strided(start, rank, d_out, stride)
        for start, d_out, stride in zip(place.b_starts, place.d_outs, place.b_stride, strict=True)
    )
    total = sum(place.d_outs)
    whole = None
    if place.whole_start is not None:
        whole = strided(place.whole_start, place.adapted * rank, total, total)
    return Factors(a, b, whole)
