"""Perturbs what A makes of its inputs while answers are written, and keeps ``weights.traces``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.errors import HostError
from symbiont_ecology.host.backend.lowrank import Shares, Site
from symbiont_ecology.host.backend.slot_tiles import Tiling
from symbiont_ecology.weights.adapter import AdapterLayout
from symbiont_ecology.weights.traces import Traces


class Tracer:
    """Sits between A and B of every site. ``move`` says which rows come next, and at which step.

    Each row with a generator in ``draws`` is perturbed by noise of standard deviation ``std``,
    drawn from it for as many tokens as the row's limit says.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        layout: AdapterLayout,
        rank: int,
        *,
        limits: Sequence[int],
        draws: Sequence[np.random.Generator | None],
        std: float,
    ) -> None:
        adapted = {name for name, _, _ in layout.modules}
        self._layout, self._rank, self._std = layout, rank, std
        self._names = [[name for name, _, _ in site if name in adapted] for site in sites]
        self._starts = np.cumsum([0, *(rank * len(names) for names in self._names)])
        size, width = (len(limits), max(limits, default=0)), int(self._starts[-1])
        reads = [site[0][1] if names else 0 for site, names in zip(sites, self._names, strict=True)]
        self._read = [np.zeros((*size, d_in), dtype=np.float32) for d_in in reads]
        self._noise = np.zeros((*size, width), dtype=np.float32)
        for row, (draw, limit) in enumerate(zip(draws, limits, strict=True)):
            if draw is not None:
                noise = draw.standard_normal((limit, width), dtype=np.float32)
                self._noise[row, :limit] = noise * np.float32(std)
        self._rows, self._step = np.zeros(0, dtype=np.int64), 0

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

    def traces(self) -> Traces:
        """What was kept, module by module."""
        modules = {}
        for site, names in enumerate(self._names):
            for member, name in enumerate(names):
                low = self._starts[site] + member * self._rank
                modules[name] = (self._read[site], self._noise[..., low : low + self._rank])
        return Traces(self._layout, self._std, modules)


def check_traced(prompts: Sequence[np.ndarray]) -> None:
    """Whether what is written after these prompts can be traced.

    Raises:
        HostError: one has a single token.
    """
    if min(map(len, prompts), default=2) < 2:
        raise HostError(
            "expected prompts of two tokens or more to trace, got one of a single token"
        )
