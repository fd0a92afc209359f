"""Tiles: how rows of many slots become the rectangle that one batched matrix product wants.

When decoding, a row is one token, and looping over slots would cost more than it computes. So the
low-rank term is taken on tiles, ``height`` rows of one slot each; a slot with more rows has several
tiles, and what a tile lacks is filled with a copy of one of its rows. Only the thin low-rank
products see the filled rows, the host itself does not. (S-LoRA and Punica solve the same with
custom GPU kernels, arXiv:2311.03285 and arXiv:2310.18547.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

READING = 9.0
"""Cost of reading one more tile's factors, in rows of low-rank products: both grow alike with the
rank. Measured on ragged populations: 4.5 and 20 were 5 % slower."""


@dataclass(frozen=True)
class Tiling:
    """``slots`` has one entry per tile. ``rows (tiles · height,)`` are the rows that stand in the
    tiles.

    ``back (rows,)`` is where each row stands. Both are None when rows and tiles are in one order.
    """

    slots: tuple[int, ...]
    height: int
    rows: Tensor | None
    back: Tensor | None

    def laid(self, x: Tensor) -> Tensor:
        """``x (rows, width)`` in tiles: ``(tiles, height, width)``."""
        if self.rows is not None:
            x = x.index_select(0, self.rows)
        return x.view(len(self.slots), self.height, -1)

    def add(self, y: Tensor, inner: Tensor, b: Tensor) -> None:
        """``y (rows, width)`` plus ``inner (tiles, height, rank) @ b (tiles, rank, width)``, in
        place."""
        if self.back is None:
            y.view(len(self.slots), self.height, -1).baddbmm_(inner, b)
        else:
            y.add_(torch.bmm(inner, b).flatten(0, 1).index_select(0, self.back))


def tile_rows(slots: Sequence[int], device: torch.device) -> Tiling:
    """The cheapest tiling of rows that belong to these slots (one entry per row, ascending, not
    empty)."""
    names, starts, counts = np.unique(np.asarray(slots), return_index=True, return_counts=True)
    heights = np.arange(1, counts.max() + 1)
    tiles = -(-counts[None, :] // heights[:, None])  # (heights, slots): tiles per slot, rounded up
    height = int(heights[np.argmin(tiles.sum(1) * (heights + READING))])
    need = tiles[height - 1]
    owners = tuple(np.repeat(names, need).tolist())
    if (counts == need * height).all():
        return Tiling(owners, height, None, None)
    # Tile after tile: the slot's own rows, the last of them repeated.
    first = np.repeat(starts, need * height)
    offset = np.arange(len(first)) - np.repeat(
        np.cumsum(need * height) - need * height, need * height
    )
    last = np.repeat(counts - 1, need * height)
    rows = first + np.minimum(offset, last)
    back = np.flatnonzero(offset <= last)
    return Tiling(
        owners, height, torch.from_numpy(rows).to(device), torch.from_numpy(back).to(device)
    )
