"""Routes by the letters of a prompt: ridge regression of verdicts on hashed character n-grams.

One regression per organelle predicts how much its verdict differs from the bare host's mean, so a
prompt unlike anything an organelle met predicts no difference: it then loses to whoever has
evidence, and to the host when nobody has. Label-free: neither family nor cell is looked at. Ridge:
Hoerl & Kennard 1970; hashed features: Weinberger et al. 2009, arXiv:0902.2206.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from symbiont_ecology.ecology import HOST
from symbiont_ecology.inference.routers import Expectation, Observation, routers
from symbiont_ecology.types import OrganelleId

FEATURES, LONGEST, RIDGE = 4096, 6, 1.0
"""Hash buckets; longest n-gram, in characters; strength of the pull towards the host's mean."""
PROMPTS_PER_BATCH = 1024
"""Prompts that are embedded at once: bounds memory."""


@routers.register("lexical")
@dataclass(frozen=True)
class Lexical:
    """Abstains to the bare host unless an organelle promises ``margin`` more than it."""

    margin: float = 0.02  # promised gain in success below which the host answers

    def fit(
        self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]
    ) -> Expectation:
        """One ridge regression per candidate, and one for the host."""
        seen: dict[OrganelleId, list[Observation]] = defaultdict(list)
        for observation in observations:
            seen[observation.organelle_id].append(observation)
        host = seen.get(HOST, [])
        prior = sum(o.verdict for o in host) / len(host) if host else 0.0
        everyone = [HOST, *candidates]
        known = np.array(
            sorted({code for o in observations for code in _ngrams(o.prompt, LONGEST)[0]})
        )
        heads = np.stack(
            [self._head(seen.get(organelle_id, []), prior, known) for organelle_id in everyone]
        )

        def expectation(prompts: Sequence[str]) -> np.ndarray:
            """Success beyond the host's mean."""
            promised = np.zeros((len(prompts), len(heads)))
            for start in range(0, len(prompts), PROMPTS_PER_BATCH):
                promised[start : start + PROMPTS_PER_BATCH] = (
                    self._embed(prompts[start : start + PROMPTS_PER_BATCH], known) @ heads.T
                )
            promised[:, 0] += self.margin
            return promised

        return expectation

    def _head(
        self, observations: Sequence[Observation], prior: float, known: np.ndarray
    ) -> np.ndarray:
        if not observations:
            return np.zeros(FEATURES)
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
        kernel[np.diag_indices_from(kernel)] += RIDGE / weights
        return embedded.T @ np.linalg.solve(kernel, targets)

    def _embed(self, prompts: Sequence[str], known: np.ndarray) -> np.ndarray:
        """Hashed n-gram counts ``(prompts, features)``, as long as the part of a prompt that is
        known.

        What nobody ever met must not borrow the evidence of a bucket that it happens to share.
        """
        found = [_ngrams(prompt, LONGEST) for prompt in prompts]
        codes, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rows = np.repeat(np.arange(len(found)), [len(codes) for codes, _ in found])
        is_known = np.isin(codes, known)
        places = rows * FEATURES + codes % FEATURES
        size = len(found) * FEATURES
        embedded = np.bincount(places[is_known], counts[is_known], size).reshape(
            len(found), FEATURES
        )
        # A letter said ten times is not ten times the evidence: square roots, here and in the
        # length.
        lengths = np.sqrt(np.maximum(np.bincount(rows, counts, len(found)), 1))
        return np.asarray(np.sqrt(embedded) / lengths[:, None])


@lru_cache(maxsize=1 << 15)
def _ngrams(prompt: str, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all n-grams of a prompt, each once, and how often each occurs."""
    found = [
        zlib.crc32(prompt[start : start + size].encode())
        for size in range(1, longest + 1)
        for start in range(len(prompt) - size + 1)
    ]
    return np.unique(np.array(found, dtype=np.int64), return_counts=True)
