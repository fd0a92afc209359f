"""Adapters that learn together, and the gradients that they gather.

``ArenaLearners`` lay them in an arena, as torch wants them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.model.backend.bank import Arrangement
from symbiont_ecology.model.backend.lowrank import Adapters, Site


@dataclass(eq=False)
class Learners(ABC):
    """Adapters of one layout that learn on a host with these ``sites``, by their number in
    ``weights``; ``device`` and ``dtype`` are the host's.

    If they ``are_observed``, all have one A, and B are taken to be 0: what the host puts out stays
    as it is, and the gradients of B alone are found.
    """

    sites: tuple[Site, ...]
    layout: AdapterLayout
    weights: Sequence[AdapterWeights]
    device: torch.device
    dtype: torch.dtype
    are_observed: bool = False

    @abstractmethod
    def __post_init__(self) -> None:
        """Makes room for gradients."""

    @abstractmethod
    def adapters(self, owners: Sequence[int]) -> Adapters:
        """What these owners, who are consecutive, add; a backward pass adds to their gradients."""

    @abstractmethod
    def gradients(self) -> Iterator[Tensor]:
        """The gradient of each adapter's vector, one after the other."""


class ArenaLearners(Learners):
    """In an arena, on any device."""

    def __post_init__(self) -> None:
        most = max(one.rank for one in self.weights)
        self._arrangement = arrangement_of(self.sites, self.layout, most)
        distinct = {id(one): one for one in self.weights}
        rows = {name: self._arrangement.laid(one) for name, one in distinct.items()}
        arena = torch.from_numpy(np.stack([rows[id(one)] for one in self.weights]))
        arena = arena.to(self.device)
        self._factors, self._gradients = arena.to(self.dtype), torch.zeros_like(arena)

    def adapters(self, owners: Sequence[int]) -> Adapters:
        """As ``Learners``."""
        rows = slice(owners[0], owners[-1] + 1)
        adapters = self._arrangement.factors(self._factors[rows], self._gradients[rows])
        return adapters.observed() if self.are_observed else adapters

    def gradients(self) -> Iterator[Tensor]:
        """As ``Learners``."""
        yield from map(self._arrangement.collected, self._gradients, self.weights)


@lru_cache(maxsize=16)
def arrangement_of(sites: tuple[Site, ...], layout: AdapterLayout, rank: int) -> Arrangement:
    """How learners lie."""
    return Arrangement(sites, layout, rank)
