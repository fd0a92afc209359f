"""The gradients of the compiled passes: what flows back through each, from that of what it gave.

Each computes again what its forward pass did not keep.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.host.backend.attention import AttentionSpec, RMSNorm
from symbiont_ecology.host.backend.passes import (
    Pointers,
    address_of,
    call_pass,
    check_plain,
    norm_arguments,
    rows_like,
    table_arguments,
    token_counts,
)
from symbiont_ecology.host.packing import STRETCH


def normalize_back(x: Tensor, norm: RMSNorm, dy: Tensor) -> Tensor:
    """The gradient of ``x (rows, width)`` from that of what ``normalize`` gave."""
    dy = rows_like(dy, x.shape)
    check_plain(x)
    dx = x.new_empty(x.shape)
    call_pass(
        "normalize_back",
        *(*x.shape, x.data_ptr(), x.stride(0), *norm_arguments(norm)),
        *(dy.data_ptr(), dy.stride(0), dx.data_ptr()),
    )
    return dx


def gate_back(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of ``x (rows, 2 · width)`` from that of what ``gate`` gave,
    ``(rows, width)``."""
    if x.shape[1] % 2:
        raise IndexError(f"expected gate and up side by side, got {tuple(x.shape)}")
    dy = rows_like(dy, (x.shape[0], x.shape[1] // 2))
    check_plain(x)
    dx = x.new_empty(x.shape)
    call_pass(
        "gate_back",
        *(*dy.shape, x.data_ptr(), x.stride(0), dy.data_ptr(), dy.stride(0), dx.data_ptr()),
    )
    return dx


def rotate_back(x: Tensor, spec: AttentionSpec, positions: Tensor, dy: Tensor, out: Tensor) -> None:
    """The gradient of ``x (tokens, heads, head_dim)`` goes to ``out``, from that of what ``rotate``
    gave."""
    tokens, heads, size = x.shape
    is_plain = positions.dtype == torch.int64 and positions.is_contiguous()
    if not (x.shape == dy.shape == out.shape and positions.shape == (tokens,) and is_plain):
        raise IndexError(f"expected gradients of heads {tuple(x.shape)}, got {tuple(dy.shape)}")
    dy = dy.contiguous()
    check_plain(x, dy, out)
    call_pass(
        "turn_back",
        *(tokens, heads, size, x.data_ptr(), x.stride(0), *norm_arguments(spec.norm)),
        *(*table_arguments(spec.table, size), positions.data_ptr(), dy.data_ptr()),
        *(out.data_ptr(), out.stride(0)),
    )


def look_back(
    rotated: Tensor,
    values: Tensor,
    stretches: np.ndarray,
    spec: AttentionSpec,
    dy: Tensor,
    d_values: Tensor,
) -> Tensor:
    """The gradient of ``rotated`` from that of what ``look`` gave; that of ``values`` goes to
    ``d_values``. All tokens stand on the line, none is kept from before."""
    tokens, kv_heads, size = values.shape
    heads = rotated.shape[1] - kv_heads
    if rotated.shape[::2] != (tokens, size) or d_values.shape != values.shape:
        raise IndexError(f"expected {tokens} tokens with heads of size {size}, got {rotated.shape}")
    if stretches.dtype != STRETCH:
        raise IndexError(f"expected stretches of {STRETCH}, got {stretches.dtype}")
    dy = rows_like(dy, (len(dy), heads * size)).contiguous()
    check_plain(rotated, values, d_values)
    rotated, d_rotated = rotated.contiguous(), rotated.new_empty(rotated.shape)
    call_pass(
        "look_back",
        *(len(stretches), address_of(stretches.view(np.int64)), heads, kv_heads, size, tokens),
        *(rotated.data_ptr(), rotated.stride(0), values.data_ptr(), values.stride(0)),
        *(spec.window or 0, spec.scale, dy.data_ptr(), len(dy), d_rotated.data_ptr()),
        *(d_values.data_ptr(), d_values.stride(0)),
    )
    return d_rotated


def low_rank_back(
    x: Tensor, dy: Tensor, pointers: Pointers, gradient: Pointers, counts: Sequence[int]
) -> Tensor:
    """The gradient of ``x (tokens, d_in)`` that came through ``add_low_rank``, from that of what it
    gave, ``(tokens, Σ d_outs)``; those of the factors are added where ``gradient`` points."""
    if x.shape[1] != pointers.size[0]:
        raise IndexError(f"expected inputs {pointers.size[0]} wide, got {x.shape[1]}")
    dx = x.new_zeros(x.shape)
    _run_low_rank_back(x, dy, pointers, gradient, counts, dx)
    return dx


def add_outer(inner: Tensor, dy: Tensor, gradient: Pointers, counts: Sequence[int]) -> None:
    """Adds to each owner's gradient of B where ``gradient`` points, from what A made of its tokens,
    ``(tokens, members · rank)``, and the gradient of the outputs, ``(tokens, Σ d_outs)``."""
    _run_low_rank_back(inner, dy, gradient, gradient, counts, None)


def _run_low_rank_back(
    x: Tensor,
    dy: Tensor,
    pointers: Pointers,
    gradient: Pointers,
    counts: Sequence[int],
    dx: Tensor | None,
) -> None:
    tokens, total = token_counts(tuple(counts))
    if len(x) != total or not len(tokens) == pointers.owners == gradient.owners:
        raise IndexError(f"expected {total} tokens of {pointers.owners} owners, got {len(x)}")
    x, dy = rows_like(x, x.shape), rows_like(dy, (total, pointers.size[1]))
    if not total:  # and no address
        return
    call_pass(
        "low_rank_back",
        *(*x.shape[:1], x.data_ptr(), x.stride(0), x.shape[1]),
        *(dy.data_ptr(), dy.stride(0), dy.shape[1], *pointers.site, pointers.owners),
        *(tokens.ctypes.data, *pointers.factors, *gradient.factors[2:]),
        None if dx is None else dx.data_ptr(),
    )
