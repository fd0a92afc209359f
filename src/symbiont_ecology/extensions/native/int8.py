"""Base weights in eight bits: a quarter of the memory, and products of integers.

Weights have a scale per output, inputs one per token, both symmetric and rounded to the nearest
(LLM.int8(), arXiv:2208.07339, without its exceptions). Sums of integers are exact, so what a token
gets does not depend on its neighbours, nor on how a machine multiplies. Adapters, attention,
embedding and head stay in float32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.model.backend.torch_backend import eight_bit_forms

ROWS_PER_PRODUCT = 256
"""Tokens per product: what is scaled between two products stays in the processor's cache."""
MAX_TERMS = (2**24 - 1) // 127**2
"""Products of two numbers of at most 127 that float32 adds up exactly, in any order."""

Multiply = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``Rounded.product`` without gradients."""


@eight_bit_forms.register("rounded")
@dataclass(frozen=True)
class Rounded:
    """Weights rounded to the nearest of 255 numbers, symmetric, with a scale per output."""

    def quantized(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        scales = weights.abs().amax(0).clamp_(min=1e-12).div_(127)
        return torch.round(weights / scales).to(torch.int8), scales

    def product(self, x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            found: Tensor = _Product.apply(x, weights, scales)  # type: ignore[no-untyped-call]
            return found
        return fastest()(x, weights, scales)


def ways() -> dict[str, Multiply]:
    """Return the ways in which this machine can multiply. All give the same bits for numbers that
    are finite."""
    multiplies: dict[str, Multiply] = {"floats": partial(_by_torch, _sums_of_floats)}
    is_compiled = native_ops.library() is not None
    if _adds_exactly():
        plain = partial(_by_torch, torch._int_mm)
        compiled = partial(native_ops.multiply_integers, max_rows=ROWS_PER_PRODUCT)
        multiplies["integers"] = compiled if is_compiled else plain
    if is_compiled:
        multiplies["compiled"] = native_ops.multiply_rounded
    return multiplies


@lru_cache(maxsize=1)
def fastest() -> Multiply:
    """Return the way that takes this machine the least time. torch has fast products of integers
    for some processors; for others it loops, forty times slower than over floats."""
    x, (weights, scales) = torch.ones(48, 256), Rounded().quantized(torch.ones(256, 256))
    seconds: dict[Multiply, float] = {}
    for way in ways().values():
        way(x, weights, scales)
        for _ in range(3):
            start = time.perf_counter()
            way(x, weights, scales)
            seconds[way] = min(seconds.get(way, math.inf), time.perf_counter() - start)
    return min(seconds, key=seconds.__getitem__)


def _adds_exactly() -> bool:
    """Return whether torch adds up integer products of the largest numbers without losing any."""
    largest = torch.full((32, 64), 127, dtype=torch.int8)
    signs = [(127, 127), (127, -127), (-127, 127), (-127, -127)]
    return all(
        bool(
            (
                torch._int_mm(largest.sign() * left, (largest.sign() * right).t())
                == 64 * left * right
            ).all()
        )
        for left, right in signs
    )


def _by_torch(
    sums: Callable[[Tensor, Tensor], Tensor], x: Tensor, weights: Tensor, scales: Tensor
) -> Tensor:
    """Return the product by ``sums``, which multiplies matrices of int8 to one of int32."""
    out = x.new_empty(len(x), weights.shape[1])
    for part, target in zip(
        torch.split(x, ROWS_PER_PRODUCT), torch.split(out, ROWS_PER_PRODUCT), strict=True
    ):
        units = part.abs().amax(1, keepdim=True).clamp_(min=1e-12).div_(127)
        whole = torch.round(part / units).to(torch.int8)
        torch.mul(sums(whole, weights), units, out=target).mul_(scales)
    return out


def _sums_of_floats(left: Tensor, right: Tensor) -> Tensor:
    """Return ``torch._int_mm`` of both, by exact sums of floats."""
    sums = torch.zeros(len(left), right.shape[1], dtype=torch.int32)
    for left_part, right_part in zip(
        torch.split(left.float(), MAX_TERMS, 1), torch.split(right, MAX_TERMS), strict=True
    ):
        sums += (left_part @ right_part.float()).to(torch.int32)
    return sums


class _Product(torch.autograd.Function):
    """Integers forward; the straight-through gradient of the rounding of inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(weights, scales)
        return fastest()(x, weights, scales)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        weights, scales = ctx.saved_tensors
        return (dy * scales) @ weights.to(dy.dtype).t(), None, None
