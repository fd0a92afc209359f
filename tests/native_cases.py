"""What the compiled passes are tried on, and what they have to equal."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

COUNTS = [0, 1, 2, 3, 5, 8, 23, 24, 65, 130]


def low_rank_cases(least_rank: int) -> dict[str, Any]:
    """Owners with ranks and tokens, and the members of a site, one of which may have no adapter."""
    return {
        "ranks": st.lists(st.integers(least_rank, 19), min_size=1, max_size=6),
        "counts": st.lists(st.sampled_from(COUNTS), min_size=6, max_size=6),
        "d_in": st.integers(1, 40),
        "d_outs": st.lists(st.integers(1, 90), min_size=1, max_size=3),
        "absent": st.integers(0, 3),
    }


def made(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def plain_attention(
    rotated: Tensor, values: Tensor, heads: int, window: int | None, scale: float
) -> Tensor:
    q, k = rotated[:, :heads].transpose(0, 1), rotated[:, heads:].transpose(0, 1)
    groups = heads // len(k)
    spots = torch.arange(len(rotated))
    ages = spots[:, None] - spots
    sees = (ages >= 0) & (ages < (window or len(spots)))
    k, v = (one.repeat_interleave(groups, 0) for one in (k, values.transpose(0, 1)))
    return F.scaled_dot_product_attention(q, k, v, sees, scale=scale).transpose(0, 1).flatten(1)
