"""Perturbs what A makes of its inputs while answers are written, and keeps ``weights.traces``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.host.bank import Site
from symbiont_ecology.host.lowrank import Shares
from symbiont_ecology.host.slot_tiles import Tiling
from symbiont_ecology.weights.adapter import AdapterLayout
from symbiont_ecology.weights.traces import Traces


class Tracer:
    """Sits between A and B of every site. ``move`` says which rows come next, and at which step."""

    def __init__(
        self, sites: Sequence[Site], layout: AdapterLayout, rank: int, rows: int, steps: int
    ) -> None:
        adapted = {name for name, _, _ in layout.modules}
        self._layout, self._rank = layout, rank
        self._names = [[name for name, _, _ in site if name in adapted] for site in sites]
        widths = [rank * len(names) for names in self._names]
        self._starts = np.cumsum([0, *widths])
        reads = [site[0][1] if names else 0 for site, names in zip(sites, self._names, strict=True)]
        self._read = [np.zeros((rows, steps, d_in), dtype=np.float32) for d_in in reads]
        self._noise = np.zeros((rows, steps, self.width), dtype=np.float32)
        self._rows, self._step = np.zeros(0, dtype=np.int64), 0

    @property
    def width(self) -> int:
        """Perturbed numbers per token."""
        return int(self._starts[-1])

    def perturb(self, row: int, noise: np.ndarray) -> None:
        """Sets the noise of one row, ``(its limit, width)``."""
        self._noise[row, : len(noise)] = noise

    def move(self, rows: np.ndarray, step: int, shares: Shares) -> None:
        """The next forward reads these rows in tiles, and what it says is their token number
        ``step``."""
        assert isinstance(shares, Tiling)
        self._rows = rows if shares.rows is None else rows[shares.rows.cpu().numpy()]
        self._step = step

    def __call__(self, site: int, x: Tensor, inner: Tensor) -> Tensor:
        """Keeps what was read, ``x (tiles, height, d_in)``, and gives what A made of it back with
        noise.

        ``inner`` is ``(tiles, height, members · rank)``.
        """
        self._read[site][self._rows, self._step] = x.flatten(0, 1).float().cpu().numpy()
        low, high = self._starts[site], self._starts[site + 1]
        noise = torch.from_numpy(self._noise[self._rows, self._step, low:high])
        return inner + noise.to(inner).view_as(inner)

    def traces(self, std: float) -> Traces:
        """What was kept, module by module."""
        modules = {}
        for site, names in enumerate(self._names):
            for member, name in enumerate(names):
                low = self._starts[site] + member * self._rank
                modules[name] = (self._read[site], self._noise[..., low : low + self._rank])
        return Traces(self._layout, std, modules)
