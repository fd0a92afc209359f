"""Routes by the letters of a prompt: ridge regression of verdicts on hashed character n-grams.

One regression per organelle predicts how much its verdict differs from the bare host's mean, so a prompt
unlike anything an organelle met predicts no difference: it then loses to whoever has evidence, and to the
host when nobody has. Label-free: neither family nor cell is looked at. Ridge: Hoerl & Kennard 1970;
hashed features: Weinberger et al. 2009, arXiv:0902.2206.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from symbiont_ecology.ecology import HOST
from symbiont_ecology.routing.routers import Observation, Promise, routers
from symbiont_ecology.types import OrganelleId


@routers.register("lexical")
@dataclass(frozen=True)
class Lexical:
    """Abstains to the bare host unless an organelle promises ``margin`` more than it."""

    features: PositiveInt = 4096  # hash buckets
    longest: PositiveInt = 6  # longest n-gram, in characters
    ridge: PositiveFloat = 1.0  # strength of the pull towards the host's mean, > 0
    margin: float = 0.02  # promised gain in success below which the host answers

    def fit(self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]) -> Promise:
        """One ridge regression per candidate, and one for the host."""
        seen: dict[OrganelleId, list[Observation]] = defaultdict(list)
        for observation in observations:
            seen[observation.who].append(observation)
        host = seen.get(HOST, [])
        prior = sum(o.verdict for o in host) / len(host) if host else 0.0
        everyone = [HOST, *candidates]
        known = frozenset(code for prompt in {o.prompt for o in observations} for code in self._codes(prompt))
        heads = np.stack([self._head(seen.get(who, []), prior, known) for who in everyone])

        def promise(prompts: Sequence[str]) -> np.ndarray:
            """Success beyond the host's mean."""
            promised: np.ndarray = self._embed(prompts, known) @ heads.T
            promised[:, 0] += self.margin
            return promised

        return promise

    def _head(self, observations: Sequence[Observation], prior: float, known: frozenset[int]) -> np.ndarray:
        if not observations:
            return np.zeros(self.features)
        # One line per prompt and verdict mean: repeated prompts add weight, not rows.
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for o in observations:
            sums[o.prompt][0] += o.weight
            sums[o.prompt][1] += o.weight * (o.verdict - prior)
        embedded = self._embed(list(sums), known)
        weights = np.array([weight for weight, _ in sums.values()])
        targets = np.array([total for _, total in sums.values()]) / weights
        # The dual form: an organelle met far fewer prompts than there are features.
        kernel = embedded @ embedded.T
        kernel[np.diag_indices_from(kernel)] += self.ridge / weights
        return embedded.T @ np.linalg.solve(kernel, targets)

    def _embed(self, prompts: Sequence[str], known: frozenset[int]) -> np.ndarray:
        """Hashed n-gram counts ``(prompts, features)``, as long as the part of a prompt that is known.

        What nobody ever met must not borrow the evidence of a bucket that it happens to share.
        """
        embedded = np.zeros((len(prompts), self.features))
        for row, prompt in enumerate(prompts):
            codes = Counter(self._codes(prompt))
            for code, count in codes.items():
                if code in known:
                    embedded[row, code % self.features] += count
            # A letter said ten times is not ten times the evidence: square roots, here and in the length.
            embedded[row] = np.sqrt(embedded[row]) / math.sqrt(max(codes.total(), 1))
        return embedded

    def _codes(self, prompt: str) -> Iterator[int]:
        """Every n-gram of a prompt, hashed."""
        for size in range(1, self.longest + 1):
            for start in range(len(prompt) - size + 1):
                yield zlib.crc32(prompt[start : start + size].encode())
