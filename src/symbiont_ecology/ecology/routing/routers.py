"""Routers learn from past rollouts which adapter to ask; they see prompt text and nothing else."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from symbiont_ecology.base.registry import Registry, Share
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology import HOST


@dataclass(frozen=True)
class Observation:
    """One past rollout: who answered which prompt, and the verdict. No family label in sight."""

    prompt: str
    organelle_id: OrganelleId
    verdict: float
    weight: float = 1.0
    """Newer outcomes say more about an organelle that went on learning."""


Expectation = Callable[[Sequence[str]], np.ndarray]
"""Prompts in, what is expected of everyone out: ``(prompts, 1 + candidates)``, the bare host first.
The host's is infinite where nobody else should be asked."""


class Router(Protocol):
    """Learns from observations which organelle to ask; sees prompt text only."""

    def fit(
        self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]
    ) -> Expectation:
        """Return what to expect of the bare host and of each candidate; the highest is asked."""


routers: Registry[Router] = Registry("router", "symbiont_ecology.ecology.routing")

FEATURES, MAX_NGRAM, RIDGE = 4096, 6, 1.0
"""Hash buckets; longest n-gram, in characters; strength of the pull towards the host's mean."""
PROMPTS_PER_BATCH = 1024
"""Prompts that are embedded at once: bounds memory."""
STRANGEST, MAX_COMPARED = 0.01, 1024
"""Share of practised prompts that may be less familiar than the measure of familiarity is; how many
of them a prompt is compared with."""


@routers.register("lexical")
@dataclass(frozen=True)
class Lexical:
    """Abstains to the bare host unless an organelle promises ``margin`` more than it.

    A ridge regression of verdicts on hashed character n-grams for each organelle (Hoerl & Kennard
    1970; hashed features: Weinberger et al. 2009, arXiv:0902.2206). It predicts how much a verdict
    differs from the bare host's mean. So a prompt unlike anything that an organelle met predicts no
    difference. It then loses to whoever has evidence, and to the host when nobody has. Label-free:
    neither family nor cell is looked at.

    A few shared letters are evidence enough for the regression, so strangers find someone, too.
    With ``familiar`` above 0, a prompt that is too unlike all practised ones goes to the bare host.
    The measure is the practised prompts themselves: each one is left out and compared with the
    others, and the strangest hundredth sets it (docs/running.md has the figures).
    """

    margin: float = 0.02  # promised gain in success below which the host answers
    familiar: Share = 0.0  # likeness to practised prompts, of the least they have; 0: any will do

    def fit(
        self, observations: Sequence[Observation], candidates: Sequence[OrganelleId]
    ) -> Expectation:
        """Fit one ridge regression per candidate, and one for the host."""
        by_organelle: dict[OrganelleId, list[Observation]] = defaultdict(list)
        for observation in observations:
            by_organelle[observation.organelle_id].append(observation)
        verdicts = [observation.verdict for observation in by_organelle[HOST]]
        prior = sum(verdicts) / len(verdicts) if verdicts else 0.0
        known = np.array(sorted({code for o in observations for code in _ngrams(o.prompt)[0]}))
        heads = np.stack([_head(by_organelle[name], prior, known) for name in (HOST, *candidates)])
        practised = sorted({o.prompt for o in observations if o.organelle_id != HOST})
        compared = practised[:: max(-(-len(practised) // MAX_COMPARED), 1)]
        references = _embed(compared, known) if self.familiar and compared else None
        least = 0.0
        if references is not None:
            likeness = references @ references.T
            np.fill_diagonal(likeness, 0.0)
            least = self.familiar * float(np.quantile(likeness.max(axis=1), STRANGEST))

        def expectation(prompts: Sequence[str]) -> np.ndarray:
            promised = np.zeros((len(prompts), len(heads)))
            for start in range(0, len(prompts), PROMPTS_PER_BATCH):
                batch = slice(start, start + PROMPTS_PER_BATCH)
                embedded = _embed(prompts[batch], known)
                promised[batch] = embedded @ heads.T
                if references is not None:
                    is_strange = (embedded @ references.T).max(axis=1) < least
                    promised[batch][is_strange, 0] = np.inf
            promised[:, 0] += self.margin
            return promised

        return expectation


def _head(observations: Sequence[Observation], prior: float, known: np.ndarray) -> np.ndarray:
    """Return the weights of one regression, ``(features,)``."""
    if not observations:
        return np.zeros(FEATURES)
    # One line per prompt and verdict mean: repeated prompts add weight, not rows.
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for o in observations:
        sums[o.prompt][0] += o.weight
        sums[o.prompt][1] += o.weight * (o.verdict - prior)
    embedded = _embed(list(sums), known)
    weights, totals = np.array(list(sums.values())).T
    # The dual form: an organelle met far fewer prompts than there are features.
    kernel = embedded @ embedded.T
    kernel[np.diag_indices_from(kernel)] += RIDGE / weights
    return np.asarray(embedded.T @ np.linalg.solve(kernel, totals / weights))


def _embed(prompts: Sequence[str], known: np.ndarray) -> np.ndarray:
    """Return hashed n-gram counts, ``(prompts, features)``, as long as the known part of a prompt.

    What nobody ever met must not borrow the evidence of a bucket that it happens to share.
    """
    ngrams = [_ngrams(prompt) for prompt in prompts]
    codes, counts = (np.concatenate(parts) for parts in zip(*ngrams, strict=True))
    rows = np.repeat(np.arange(len(ngrams)), [len(codes) for codes, _ in ngrams])
    is_known = np.isin(codes, known)
    places = (rows * FEATURES + codes % FEATURES)[is_known]
    sums = np.bincount(places, counts[is_known], len(ngrams) * FEATURES)
    # A letter said ten times is not ten times the evidence: square roots, here and in the length.
    lengths = np.sqrt(np.maximum(np.bincount(rows, counts, len(ngrams)), 1))
    return np.asarray(np.sqrt(sums.reshape(-1, FEATURES)) / lengths[:, None])


@lru_cache(maxsize=1 << 15)
def _ngrams(prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of all n-grams of a prompt, each once, and how often each occurs."""
    hashes = [
        zlib.crc32(prompt[start : start + size].encode())
        for size in range(1, MAX_NGRAM + 1)
        for start in range(len(prompt) - size + 1)
    ]
    return np.unique(np.array(hashes, dtype=np.int64), return_counts=True)
