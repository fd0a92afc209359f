"""From logits to tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_cdf(
    logits: Tensor, uniforms: Tensor, temperature: float | Tensor, top_p: float | Tensor
) -> Tensor:
    """One token per row: where the cumulative distribution within ``top_p`` passes the uniform
    number (nucleus: arXiv:1904.09751).

    In double precision: a single-precision sum over a large vocabulary is off by more than a rare
    token.

    Args:
        logits: ``(rows, vocab)``.
        uniforms: ``(rows,)``, in [0, 1).
        temperature: above 0; one for all rows, or ``(rows, 1)``.
        top_p: in (0, 1]; one for all rows, or ``(rows, 1)``.
    """
    weights = torch.softmax(logits.double() / temperature, dim=-1)
    if isinstance(top_p, Tensor) or top_p < 1.0:
        ranked, order = weights.sort(dim=-1, descending=True, stable=True)
        is_out = ranked.cumsum(-1) - ranked >= top_p  # the first token is always in
        weights = weights.masked_fill(is_out.gather(-1, order.argsort(-1)), 0.0)
    cumulative = weights.cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    # The first place beyond the target has weight > 0; rounding may push the target to the very
    # end.
    place = torch.searchsorted(cumulative, target, right=True)[:, 0]
    # To ask a GPU takes longer than to do it always.
    if not place.is_cpu or bool((place == weights.shape[-1]).any()):
        place = torch.minimum(place, (weights > 0).long().cumsum(-1).argmax(-1))
    return place
