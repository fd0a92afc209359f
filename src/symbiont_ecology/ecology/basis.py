"""Bases: in which directions the answers of a family differ.

Answers to different questions differ for many reasons, and who wants what is one of them. Solved
examples of several kinds differ by kind more than by anything else. So the few directions in which
examples differ most (principal components, Pearson 1901) keep what says who wants what, and leave
out nearly all else.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

DIRECTIONS = 8
"""Kept of a family: of 4, 8 and 16 the best for answers in four styles (docs/log.md)."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The ``mean (dimensions,)`` of a family's examples, and the ``directions (DIRECTIONS,
    dimensions)`` in which they differ most; zeros where there are too few examples."""

    mean: np.ndarray
    directions: np.ndarray

    @classmethod
    def of(cls, examples: np.ndarray) -> Basis:
        """That of at least one example, ``(examples, dimensions)``."""
        mean = examples.mean(0)
        directions = np.zeros((DIRECTIONS, len(mean)), dtype=np.float32)
        found = np.linalg.svd(examples - mean, full_matrices=False)[2]
        count = min(DIRECTIONS, len(examples) - 1)
        directions[:count] = found[:count]
        return cls(mean, directions)

    def coordinates(self, vector: np.ndarray) -> np.ndarray:
        """Where an answer lies, as a unit vector ``(DIRECTIONS,)``: next to zeros if it differs
        from the mean by rounding alone."""
        coordinates: np.ndarray = self.directions @ (vector - self.mean)
        least = 1e-5 * float(np.linalg.norm(vector)) + 1e-12
        return coordinates / max(float(np.linalg.norm(coordinates)), least)

    def written(self) -> str:
        """As text: numbers in base64."""
        numbers = np.vstack([self.mean[None], self.directions]).astype("<f4")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def read(cls, text: str) -> Basis:
        """What was written."""
        numbers = np.frombuffer(base64.b64decode(text), "<f4").reshape(1 + DIRECTIONS, -1)
        return cls(numbers[0], numbers[1:])
