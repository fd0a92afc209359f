"""The range of an organelle: which prompts it has met, as far as their letters tell.

A prompt is a unit vector of hashed character n-grams (feature hashing: Weinberger et al. 2009,
arXiv:0902.2206). A range knows their mean, and how near to it its own prompts are. So a prompt may
be strange to it, whatever family it is of: families and labels are not looked at.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

PROFILE_SIZE, LONGEST_GRAM = 256, 4
"""Of a profile; longest n-gram, in characters."""
USUAL_SPREAD, WORTH = 0.01, 4.0
"""Standard deviation of cosines where nothing is known, and for how many prompts that counts."""
FADE = 0.98
"""What an older cosine counts after each generation: means get better known, so cosines rise."""
MOST_PROMPTS = 512
"""Prompts whose mean is kept; then older ones fade, too."""


@dataclass(frozen=True)
class PromptRange:
    """What is known of the prompts of an organelle.

    ``total`` is the sum of their profiles, float32 ``(dimensions,)`` in base64; ``count`` is how
    many there were. ``seen`` is the weight of the cosines between prompts and the mean of the
    others, ``mean`` and ``squares`` are their mean and their weighted squared deviations.
    """

    total: str = ""
    count: float = 0.0
    seen: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @cached_property
    def vector(self) -> np.ndarray:
        """The sum of all profiles."""
        if not self.total:
            return np.zeros(PROFILE_SIZE)
        return np.frombuffer(base64.b64decode(self.total), np.float32).astype(np.float64)

    @property
    def is_open(self) -> bool:
        """Whether too little is known to find anything strange."""
        return self.seen == 0

    def familiarity(self, prompt: str) -> float:
        """How near a prompt is to the mean, in standard deviations of the own prompts: about 0 for
        those, far below for strange ones."""
        cosine = float(_unit(self.vector) @ profile(prompt))
        variance = (self.squares + WORTH * USUAL_SPREAD**2) / (self.seen + WORTH)
        return (cosine - self.mean) / math.sqrt(variance)

    def after(self, prompts: Sequence[str]) -> PromptRange:
        """With the prompts of one more generation."""
        profiles = np.array([profile(prompt) for prompt in prompts])
        part = min(1.0, MOST_PROMPTS / max(self.count, 1.0))
        total, count = part * self.vector + profiles.sum(axis=0), part * self.count + len(profiles)
        seen, mean, squares = FADE * self.seen, self.mean, FADE * self.squares
        for row in profiles if count > 1 else ():
            cosine = float(_unit(total - row) @ row)
            seen += 1
            step = (cosine - mean) / seen
            squares += (cosine - mean) * (cosine - mean - step)
            mean += step
        text = base64.b64encode(total.astype(np.float32).tobytes()).decode()
        return PromptRange(text, count, seen, mean, squares)


@lru_cache(maxsize=1 << 14)
def profile(prompt: str) -> np.ndarray:
    """Unit vector ``(dimensions,)`` of square roots of the counts of hashed n-grams; read only."""
    data = prompt.encode()
    codes = [
        zlib.crc32(data[start : start + size]) % PROFILE_SIZE
        for size in range(1, LONGEST_GRAM + 1)
        for start in range(len(data) - size + 1)
    ]
    vector = _unit(np.sqrt(np.bincount(codes, minlength=PROFILE_SIZE)))
    vector.setflags(write=False)
    return vector


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
