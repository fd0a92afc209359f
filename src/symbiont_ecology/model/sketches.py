"""Short vectors of an answer, made by the bare host: of its gradient, and of its meaning.

Gradient sketches say what an answer would teach the bare host.

Two answers teach the same if their gradients point the same way, and contradict each other if they
point apart (TracIn, Pruthi et al. 2020, arXiv:2002.08484; LESS, Xia et al. 2024, arXiv:2402.04333).
The gradient is taken at the bare host, so a sketch never gets old, whatever organelles learn: the
same answer has the same sketch for everyone.

It is the gradient with respect to B of one fixed adapter (A random, B = 0). Every module counts
alike, and roots are taken, so that a few large numbers do not decide. A random projection (count
sketch, Charikar et al. 2002) makes it short; cosines stay what they are to within 1 ÷ √dimensions.

Embeddings say what the bare host makes of an answer that it has read. The hidden state behind the
last token sums the whole text up (last-token pooling, Wang et al. 2024, arXiv:2401.00368). It is
taken in two layers, at 3/5 and 4/5 of the depth: what says most of a text as a whole lies between
words, which lower layers know, and the next token, which the last ones know (Skean et al. 2025,
arXiv:2502.02013). It never gets old, either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.model.budget import MemoryBudget
from symbiont_ecology.model.decoder import Decoder
from symbiont_ecology.model.learning import Example, add_gradients, learners_of
from symbiont_ecology.model.packing import Text, least_shared, packings

DIMENSIONS, DIMENSIONS_IF_LARGE = 256, 2048
"""Of a sketch; of one of a large host, where what answers teach has more directions."""
_SEED = 20_261_124
MAX_OWNERS = 32
"""Examples whose gradients are computed together and kept apart."""


class Sketcher:
    """Sketches of gradients of one layout at one rank, ``(dimensions,)`` each."""

    def __init__(self, layout: AdapterLayout, rank: int, shape: HostShape) -> None:
        generator = np.random.default_rng(_SEED)
        self.adapter = AdapterWeights.random(layout, rank, 1.0, generator)
        self.dimensions = DIMENSIONS_IF_LARGE if shape.is_large else DIMENSIONS
        blocks = list(layout.blocks(rank))
        first = len(blocks) * shape.sketched_from // shape.layers
        slices = [b for _, _, b, _, _ in blocks[first:]]
        self._places = np.concatenate([np.arange(b.start, b.stop) for b in slices])
        self._sizes = np.array([b.stop - b.start for b in slices])
        self._starts = np.cumsum(self._sizes) - self._sizes
        count = len(self._places)
        self._bucket = generator.integers(0, self.dimensions, count)
        self._sign = generator.choice([-1.0, 1.0], count).astype(np.float32)

    def sketch(self, gradient: np.ndarray) -> np.ndarray:
        """Return the sketch of a gradient in the layout's order: a unit vector."""
        parts = gradient[self._places]
        sizes = np.abs(parts)
        lengths = np.sqrt(np.add.reduceat(sizes, self._starts))  # of the roots of a module's parts
        roots = np.copysign(np.sqrt(sizes, out=sizes), parts * self._sign)
        roots *= np.repeat(1 / np.maximum(lengths, 1e-12), self._sizes)
        vector = np.bincount(self._bucket, roots, self.dimensions)
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


@lru_cache(maxsize=4)
def sketcher_of(layout: AdapterLayout, rank: int, shape: HostShape) -> Sketcher:
    """Return the sketcher of a layout, which is made once."""
    return Sketcher(layout, rank, shape)


def sketches(
    decoder: Decoder, sketcher: Sketcher, answers: Sequence[Example], budget: MemoryBudget
) -> np.ndarray:
    """Return sketches of the gradient of each answer's loss, ``(answers, dimensions)``."""
    adapter = sketcher.adapter
    learns_from = decoder.shape.sketched_from
    rows = list[np.ndarray]()
    for start in budget.paced(range(0, len(answers), MAX_OWNERS)):
        examples = list[Example]()
        for owner, answer in enumerate(answers[start : start + MAX_OWNERS]):
            tokens = len(answer.completion)
            weights = np.full(tokens, 1 / tokens, dtype=np.float32)
            examples.append(replace(answer, owner=owner, weights=weights))
        learners = learners_of(decoder, adapter.layout, [adapter] * len(examples))
        add_gradients(decoder, learners, examples, budget, learns_from=learns_from)
        rows += [sketcher.sketch(gradient.cpu().numpy()) for gradient in learners.gradients()]
    return np.array(rows)


def embeddings(decoder: Decoder, answers: Sequence[Example], budget: MemoryBudget) -> np.ndarray:
    """Return the embedding of each answer, ``(answers, layers · hidden)``."""
    layers = decoder.shape.embedding_layers
    least = least_shared(decoder.shape)
    texts = [Text(answer.prompt, answer.completion) for answer in answers]
    owners = [HOST_SLOT] * len(texts)
    rows = np.zeros((len(texts), len(layers) * decoder.shape.hidden), dtype=np.float32)
    with torch.no_grad():
        limit = budget.forward_tokens
        pieces = packings(texts, owners, decoder.device, limit, least=least)
        for piece, packing in budget.paced(pieces):
            states = decoder.states(packing, layers)
            rows[piece] = states.flatten(1).float().cpu().numpy()
    return rows
