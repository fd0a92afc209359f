"""What the bare host makes of texts, without any adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from symbiont_ecology.host.backend.lowrank import bare
from symbiont_ecology.host.budget import MemoryBudget
from symbiont_ecology.host.decoder import Decoder
from symbiont_ecology.host.packing import Text, chunks, least_shared, pack_texts
from symbiont_ecology.types import HOST_SLOT


def features(decoder: Decoder, encoded: Sequence[np.ndarray], budget: MemoryBudget) -> np.ndarray:
    """Last hidden states of each text, averaged over its tokens: ``(texts, hidden)``."""
    means = np.zeros((len(encoded), decoder.shape.hidden), dtype=np.float32)
    texts, owners = [Text(ids) for ids in encoded], [HOST_SLOT] * len(encoded)
    least = least_shared(decoder.shape)
    with torch.inference_mode():
        for rows in chunks(texts, owners, budget.forward_tokens, least=least):
            piece = [texts[row] for row in rows]
            packing = pack_texts(piece, owners[: len(rows)], decoder.device, least=least)
            states = decoder.features(packing, bare(len(decoder.sites)))
            means[rows] = states.float().cpu().numpy()
    return means
