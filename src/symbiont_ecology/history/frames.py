"""The generations of a run in groups: what a page or a figure has room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Frames:
    """Whole generations in groups of ``width``; a frame shows its sums, or its end."""

    generations: int
    width: int

    @classmethod
    def of(cls, generations: int, most: int) -> Frames:
        """At most so many frames, with as few generations in each as can be."""
        return cls(generations, max(1, -(-generations // most)))

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.generations // self.width)

    @property
    def edges(self) -> np.ndarray:
        """Where frames begin, and where the last one ends, ``(count + 1,)``."""
        return np.minimum(np.arange(self.count + 1) * self.width, self.generations)

    @property
    def lengths(self) -> np.ndarray:
        """Generations of each frame, ``(count,)``."""
        return np.diff(self.edges)

    @property
    def ends(self) -> list[int]:
        """The last generation of each frame."""
        ends: list[int] = (self.edges[1:] - 1).tolist()
        return ends

    def at(self, generation: int) -> int:
        """The frame of a generation."""
        return generation // self.width
