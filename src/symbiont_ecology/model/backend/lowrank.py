"""The low-rank term of many owners on packed tokens: ``y += (x Aᵀ) B``, each owner with its own A
and B.

Tokens stand owner after owner, as many as each one has, so nothing is padded. This file computes
the term with torch. A loop over owners writes straight into the host's own output, and on CUDA one
grouped product does the same in one launch. Gradients of the factors go straight into the learner's
buffer: autograd sees activations alone. When decoding, a row is one token, and a loop over slots
would cost more than it computes: the term is taken on tiles then.
LoRA: arXiv:2106.09685; many adapters in one batch: arXiv:2311.03285 (S-LoRA), arXiv:2310.18547.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Site = tuple[tuple[str, int, int], ...]
"""Modules ``(name, d_in, d_out)`` that read one input, in the order of their outputs."""

READING = 9.0
"""Cost of reading one more tile's factors, in rows of low-rank products: both grow alike with the
rank. Measured on ragged populations: 4.5 and 20 were 5 % slower."""


@dataclass(frozen=True)
class Tiling:
    """Tiles of ``height`` rows of one slot each, the rectangles of one batched matrix product.

    A slot with more rows has several tiles, and what a tile lacks is filled with copies of its last
    row. ``slots`` has one entry per tile, ``rows (tiles · height,)`` are the rows in them.

    ``back (rows,)`` is where each row stands. Both are None when rows and tiles are in one order.
    """

    slots: tuple[int, ...]
    height: int
    rows: Tensor | None
    back: Tensor | None

    def laid(self, x: Tensor) -> Tensor:
        """Return ``x (rows, width)`` in tiles: ``(tiles, height, width)``."""
        if self.rows is not None:
            x = x.index_select(0, self.rows)
        return x.view(len(self.slots), self.height, -1)

    def add(self, y: Tensor, inner: Tensor, b: Tensor) -> None:
        """Add ``inner (tiles, height, rank) @ b (tiles, rank, width)`` to ``y (rows, width)``,
        in place."""
        if self.back is None:
            y.view(len(self.slots), self.height, -1).baddbmm_(inner, b)
        else:
            y.add_(torch.bmm(inner, b).flatten(0, 1).index_select(0, self.back))


def tile_rows(slots: Sequence[int], device: torch.device) -> Tiling:
    """Return the cheapest tiling of rows that belong to these slots (one entry per row, ascending,
    not empty)."""
    names, starts, counts = np.unique(np.asarray(slots), return_index=True, return_counts=True)
    heights = np.arange(1, counts.max() + 1)
    tiles = -(-counts[None, :] // heights[:, None])  # (heights, slots): tiles per slot, rounded up
    height = int(heights[np.argmin(tiles.sum(1) * (heights + READING))])
    need = tiles[height - 1]
    owners = tuple(np.repeat(names, need).tolist())
    if (counts == need * height).all():
        return Tiling(owners, height, None, None)
    # Tile after tile: the slot's own rows, the last of them repeated.
    sizes = need * height
    offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    last = np.repeat(counts - 1, sizes)
    rows = np.repeat(starts, sizes) + np.minimum(offset, last)
    back = np.flatnonzero(offset <= last)
    indices = (torch.from_numpy(index).to(device) for index in (rows, back))
    return Tiling(owners, height, *indices)


Shares = Sequence[int] | Tiling
"""Which tokens are whose: the number of each owner's, one owner's after the other's, or tiles."""


class LowRankTerm(Protocol):
    """The low-rank terms of one site, one entry per owner or per tile."""

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        """Adds the terms for ``x (tokens, d_in)`` to ``y (tokens, Σ d_outs)``, in place.

        ``shares`` are the tokens of each owner. They are tiles when torch decodes: one token per
        row makes products that are too small to loop over.
        """
        ...


@dataclass(frozen=True)
class Factors:
    """LoRA factors of one site as tensors (see ``LowRankTerm``).

    ``a`` is ``(owners, members · rank, d_in)``, ``b[j]`` is ``(owners, rank, d_outs[j])``, or None
    for a member without adapter (which has no share of ``a``). ``gradient`` are buffers of these
    shapes that a backward pass adds to.
    """

    a: Tensor
    b: tuple[Tensor | None, ...]
    d_outs: tuple[int, ...]
    gradient: Factors | None = None

    def members(self) -> list[tuple[slice, slice, Tensor]]:
        """Return ``(columns of the output, columns of x Aᵀ, B)`` of every adapted member."""
        members: list[tuple[slice, slice, Tensor]] = []
        column = share = 0
        for b, d_out in zip(self.b, self.d_outs, strict=True):
            if b is not None:
                rank = b.shape[1]
                members.append((slice(column, column + d_out), slice(share, share + rank), b))
                share += rank
            column += d_out
        return members

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        if isinstance(shares, Tiling):
            tiles = shares.laid(x)
            inner = torch.bmm(tiles, self.a.transpose(1, 2))
            for columns, share, b in self.members():
                shares.add(y[:, columns], inner[..., share], b)
        elif torch.is_grad_enabled() and x.requires_grad:
            y = _LowRank.apply(x, y, self, shares)  # type: ignore[no-untyped-call]
        else:
            _forward(x, y, self, shares)
        return y


@dataclass(frozen=True)
class DroppingTerm:
    """Terms with dropout on their inputs."""

    term: LowRankTerm
    dropped: Callable[[Tensor], Tensor]

    def add_to(self, y: Tensor, x: Tensor, shares: Shares) -> Tensor:
        return self.term.add_to(y, self.dropped(x), shares)


Adapters = tuple[LowRankTerm | None, ...]
"""Low-rank terms of some owners: one entry per site, None where a site has no adapter."""


def dropping(adapters: Adapters, dropout: Callable[[int, Tensor], Tensor] | None) -> Adapters:
    """Return adapters with dropout on their inputs (``dropout.Dropout``)."""
    if dropout is None:
        return adapters
    return tuple(
        term and DroppingTerm(term, partial(dropout, site)) for site, term in enumerate(adapters)
    )


class _LowRank(torch.autograd.Function):
    """Adds in place going forward; going back, adds the factors' gradients to their buffers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, factors: Factors, counts: Sequence[int]) -> Tensor:
        ctx.save_for_backward(x, _forward(x, y, factors, counts))
        ctx.factors, ctx.counts = factors, counts
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Return gradients of x and y; those of the factors are added where they are kept."""
        x, inner = ctx.saved_tensors
        factors, counts = ctx.factors, ctx.counts
        d_inner, dx = torch.empty_like(inner), torch.empty_like(x)
        for columns, share, b in factors.members():
            _product(dy[:, columns], b.transpose(1, 2), counts, d_inner[:, share])
        _product(d_inner, factors.a, counts, dx)
        gradient = factors.gradient
        if gradient is not None:
            _outer(gradient.a, d_inner, x, counts)
            for columns, share, b in gradient.members():
                _outer(b, inner[:, share], dy[:, columns], counts)
        return dx, dy, None, None


def _forward(x: Tensor, y: Tensor, factors: Factors, counts: Sequence[int]) -> Tensor:
    """Adds the term in place and returns what A makes of ``x``."""
    inner = x.new_empty(x.shape[0], factors.a.shape[1])
    _product(x, factors.a.transpose(1, 2), counts, inner)
    for columns, share, b in factors.members():
        _product(inner[:, share], b, counts, y[:, columns], is_added=True)
    return inner


def _product(
    x: Tensor, w: Tensor, counts: Sequence[int], out: Tensor, *, is_added: bool = False
) -> None:
    """Write ``out[owner] = x[owner] @ w[owner]``, or add it."""
    write = Tensor.add_ if is_added else Tensor.copy_
    if _is_grouped(x, w):
        write(out, F.grouped_mm(x, w, offs=_ends(tuple(counts), x.device)))
    elif _is_even(counts):
        shape = len(counts), counts[0], -1
        write(out.view(shape), torch.bmm(x.view(shape), w))
    else:
        parts = zip(_parts(x, counts), w.unbind(), _parts(out, counts), strict=True)
        for part, factor, target in parts:
            if is_added:
                target.addmm_(part, factor)
            else:
                torch.mm(part, factor, out=target)


def _outer(g: Tensor, x: Tensor, z: Tensor, counts: Sequence[int]) -> None:
    """Add ``g[owner] += x[owner]ᵀ @ z[owner]``, in the precision of ``g``."""
    if _is_grouped(x, z):
        g.add_(F.grouped_mm(x.t(), z, offs=_ends(tuple(counts), x.device)))
        return
    if _is_even(counts):
        left, right = (part.view(len(counts), counts[0], -1) for part in (x, z))
        g.add_(torch.bmm(left.transpose(1, 2), right))
        return
    for target, left, right in zip(g.unbind(), _parts(x, counts), _parts(z, counts), strict=True):
        if g.dtype == x.dtype:
            target.addmm_(left.t(), right)
        else:
            target.add_(left.t() @ right)


def _parts(x: Tensor, counts: Sequence[int]) -> tuple[Tensor, ...]:
    """Return each owner's tokens."""
    return torch.split(x, list(counts))


def _is_even(counts: Sequence[int]) -> bool:
    """Return True if all owners have as many tokens, as where everyone learns the same."""
    return len(counts) > 1 and len(set(counts)) == 1


def _is_grouped(x: Tensor, y: Tensor) -> bool:
    """Return True if torch has a grouped kernel for this: half precision on CUDA, in steps of 16
    bytes."""
    is_aligned = x.shape[-1] % 8 == 0 and y.shape[-1] % 8 == 0
    # torch 2.6 has no such product.
    return x.is_cuda and x.dtype == torch.bfloat16 and is_aligned and hasattr(F, "grouped_mm")


@lru_cache(maxsize=16)
def _ends(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the ends of owners' tokens; kept, since every site of the host asks."""
    return torch.tensor(counts, device=device).cumsum(0).to(torch.int32)
