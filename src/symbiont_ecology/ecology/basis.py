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
"""Kept of a family: with 4 or 16, users of four styles find servers less surely (docs/log.md)."""
LEAST_PART = 1e-5
"""What is shorter, beside what it was made of, says nothing."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The ``mean (dimensions,)`` of a family's examples, and the ``directions (DIRECTIONS,
    dimensions)`` in which they differ most; zeros where they differ in fewer."""

    mean: np.ndarray
    directions: np.ndarray

    @classmethod
    def of(cls, examples: np.ndarray) -> Basis:
        """That of at least one example, ``(examples, dimensions)``; numbers that are not finite say
        nothing."""
        examples = examples[np.isfinite(examples).all(1)]
        directions = np.zeros((DIRECTIONS, examples.shape[1]), dtype=np.float32)
        if not len(examples):
            return cls(directions[0], directions)
        mean = examples.mean(0)
        _, spread, found = np.linalg.svd(examples - mean, full_matrices=False)
        least = LEAST_PART * float(np.linalg.norm(examples))
        found = found[:DIRECTIONS][spread[:DIRECTIONS] > least]
        directions[: len(found)] = found
        return cls(mean, directions)

    def coordinates(self, vector: np.ndarray) -> np.ndarray:
        """Where an answer lies, as a unit vector ``(DIRECTIONS,)``: zeros if it lies nowhere."""
        coordinates: np.ndarray = self.directions @ (vector - self.mean)
        length, least = np.linalg.norm(coordinates), LEAST_PART * np.linalg.norm(vector)
        return coordinates / length if length > least else np.zeros_like(coordinates)

    def written(self) -> str:
        """As text: numbers in base64."""
        numbers = np.vstack([self.mean[None], self.directions]).astype("<f4")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def read(cls, text: str) -> Basis:
        """What was written."""
        numbers = np.frombuffer(base64.b64decode(text), "<f4").reshape(1 + DIRECTIONS, -1)
        return cls(numbers[0], numbers[1:])
