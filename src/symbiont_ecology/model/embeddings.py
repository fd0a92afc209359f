"""Embeddings: what the bare host makes of an answer that it has read.

The hidden state behind the last token sums the whole text up (last-token pooling, Wang et al. 2024,
arXiv:2401.00368). It is taken in two layers, at 3/5 and 4/5 of the depth: what says most of a text
as a whole lies between words, which lower layers know, and the next token, which the last ones know
(Skean et al. 2025, arXiv:2502.02013). An embedding takes one pass forward through 4/5 of the
layers. It never gets old, since the host never changes.
"""

from __future__ import annotations

import numpy as np
import torch

from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.model.budget import MemoryBudget
from symbiont_ecology.model.decoder import Decoder
from symbiont_ecology.model.packing import Text, chunks, least_shared, pack_texts
from symbiont_ecology.model.rows import Replies


def embeddings(decoder: Decoder, answers: Replies, budget: MemoryBudget) -> np.ndarray:
    """Of each answer, ``(answers, layers · hidden)``."""
    layers, least = decoder.shape.embedding_layers, least_shared(decoder.shape)
    texts = [Text(prompt, np.array(ids, dtype=np.int64)) for prompt, ids in answers]
    owners = [HOST_SLOT] * len(texts)
    rows = np.zeros((len(texts), len(layers) * decoder.shape.hidden), dtype=np.float32)
    with torch.no_grad():
        for piece in budget.paced(chunks(texts, owners, budget.forward_tokens, least=least)):
            read = [texts[row] for row in piece]
            packing = pack_texts(read, owners[: len(read)], decoder.device, least=least)
            rows[piece] = decoder.states(packing, layers).flatten(1).float().cpu().numpy()
    return rows
