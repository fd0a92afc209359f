"""Base weights in eight bits: products of integers where a processor makes them faster than others.

Weights have a scale per output, inputs one per token, both symmetric and rounded to the nearest
(LLM.int8(), arXiv:2208.07339, without its exceptions). Sums of integers are exact, so what a token
gets does not depend on its neighbours. Adapters, attention, embedding and head stay in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS_PER_PRODUCT = 256
"""Tokens per product: what is scaled between two products stays in the processor's cache."""


def quantized(weights: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix ``(d_in, d_out)`` in eight bits, and the scale of each output, ``(d_out,)``."""
    scales = weights.abs().amax(0).clamp_(min=1e-12).div_(127)
    return torch.round(weights / scales).to(torch.int8), scales


def product(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    """``x (tokens, d_in)`` times what was quantized, ``(tokens, d_out)``; gradients are those of
    the product with the very weights that the eight bits stand for."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Product.apply(x, weights, scales)  # type: ignore[no-untyped-call, no-any-return]
    return _product(x, weights, scales)


def adds_exactly() -> bool:
    """Whether this processor adds up products of the largest numbers without losing any."""
    most = torch.full((32, 64), 127, dtype=torch.int8)
    signs = [(127, 127), (127, -127), (-127, 127), (-127, -127)]
    return all(
        bool(
            (
                torch._int_mm(most.sign() * left, (most.sign() * right).t()) == 64 * left * right
            ).all()
        )
        for left, right in signs
    )


def _product(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    out = x.new_empty(len(x), weights.shape[1])
    for part, target in zip(
        torch.split(x, ROWS_PER_PRODUCT), torch.split(out, ROWS_PER_PRODUCT), strict=True
    ):
        units = part.abs().amax(1, keepdim=True).clamp_(min=1e-12).div_(127)
        sums = torch._int_mm(torch.round(part / units).to(torch.int8), weights)
        torch.mul(sums, units, out=target).mul_(scales)
    return out


class _Product(torch.autograd.Function):
    """Integers forward; the straight-through gradient of the rounding of inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
        """As ``product``."""
        ctx.save_for_backward(weights, scales)
        return _product(x, weights, scales)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of ``x``."""
        weights, scales = ctx.saved_tensors
        return (dy * scales) @ weights.to(dy.dtype).t(), None, None
