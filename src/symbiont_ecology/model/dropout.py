"""LoRA dropout drawn from names: a token's mask depends on its slot's seed, its text and its place
in it.

A counter-based generator makes each number from its coordinates (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3"; the mixing function is SplitMix64's, Steele et al. 2014). So an
organelle that learns in company drops what it would have dropped alone, however the batch is packed
or cut into pieces. Modules that read the same input share a mask. Dropout on the input of A:
arXiv:2106.09685.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from symbiont_ecology.model.packing import Packing

LANES = 4
"""Columns that share a number of 64 bits: 16 are enough for each, to 1/65,536 of a share."""

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Dropout:
    """Zeroes a share of inputs, ``rates (tokens,)``, and scales up the rest. ``marks (tokens,)``
    are what tokens are called.

    ``ends`` are the tokens that go on after attention in the last layer.
    """

    rates: Tensor
    marks: Tensor
    ends: Tensor | None = None

    @classmethod
    def of(cls, packing: Packing, rows: Sequence[tuple[float, int, int]]) -> Dropout:
        """Make it for packed rows, with each row's share and seed, those of its owner, and its
        name, a number among the rows of its owner."""
        marks, rates = torch.zeros_like(packing.ids), torch.zeros(len(packing.ids))
        starts = packing.stretches["start"]
        for row, (text, (share, seed, name)) in enumerate(zip(packing.texts, rows, strict=True)):
            read, written = len(text.prompt), len(text.answer)
            start = _signed(seed & (1 << 64) - 1)
            prompt = int(starts[packing.prompt_of[row]])
            answer = int(starts[packing.end_of[row]])
            said = _stream(start, zlib.crc32(text.prompt.tobytes()), 0, read)
            marks[prompt : prompt + read] = said
            marks[answer : answer + written] = _stream(start, (1 << 40) + name, read, written)
            rates[prompt : prompt + read] = rates[answer : answer + written] = share
        return cls(rates.to(packing.ids.device), marks, packing.ends)

    def laid(self, places: Tensor) -> Dropout:
        """Make it for tokens laid out otherwise: ``places`` says which packed token each one is."""
        indices = places.flatten()
        return replace(self, rates=self.rates[indices], marks=self.marks[indices], ends=None)

    def __call__(self, site: int, x: Tensor) -> Tensor:
        """Return ``x (tokens or ends, width)`` as one site of the host sees it."""
        marks, rates = self.marks, self.rates
        if self.ends is not None and len(x) != len(marks):
            marks, rates = marks[self.ends], rates[self.ends]
        names = _names(site, x.shape[1]).to(x.device)
        numbers = _mixed(marks[:, None] ^ names).view(torch.int16)[:, : x.shape[1]]
        limits = (rates[:, None] * (1 << 16) - (1 << 15)).to(torch.int16)
        scale = (1.0 / (1.0 - rates[:, None])).to(x.dtype)
        scales = torch.where(numbers >= limits, scale, 0.0)
        return x * scales


@lru_cache(maxsize=256)
def _names(site: int, width: int) -> Tensor:
    """Return the names of the columns of a site, ``LANES`` of them together."""
    columns = torch.arange(-(-width // LANES)) + (site << 32)
    return _mixed(columns * _signed(_GOLDEN))


def _stream(seed: int, name: int, first: int, count: int) -> Tensor:
    """Return ``count`` numbers of a named stream, from number ``first`` on."""
    start = _mixed(torch.tensor([name])) ^ seed
    return _mixed(start + torch.arange(first, first + count) * _signed(_GOLDEN))


def _mixed(x: Tensor) -> Tensor:
    """SplitMix64's finalizer: every bit of the input changes half of the output's. Shifts are made
    logical by masks, products wrap."""
    x = (x ^ ((x >> 30) & (1 << 34) - 1)).mul_(_signed(_FIRST))
    x = ((x >> 27) & (1 << 37) - 1).bitwise_xor_(x).mul_(_signed(_SECOND))
    return ((x >> 31) & (1 << 33) - 1).bitwise_xor_(x)


def _signed(number: int) -> int:
    """Return the number of 64 bits, with a sign, that has the same bits."""
    return number - (number >> 63 << 64)
