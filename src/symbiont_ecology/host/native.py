"""The compiled passes of ``cpu_kernels.c``, where they were built (``scripts/build_native.py``).

They serve float32 hosts on a CPU when no gradients are wanted. Elsewhere, and where there was no
compiler at installation, torch computes the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from symbiont_ecology.weights.adapter import AdapterLayout, AdapterWeights

if TYPE_CHECKING:
    from symbiont_ecology.host.caches import Sight
    from symbiont_ecology.host.layers import Norm

SOURCE = Path(__file__).with_name("cpu_kernels.c")
BUILT = Path(__file__).with_name("libcpu_kernels.so")

_KINDS = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float}
_SIGNATURES = {
    "add_low_rank": "pnpn nnpp nppp pp pnn",
    "attend": "nnnn pn pf pp ppn pp nf pn",
    "fill": "npp nnnn pn pn pp n",
    "gate": "nn pn pn",
    "look": "np nnn pn pn nf pn",
    "normalize": "nn pn pf pn",
    "turn_all": "nnn pn pf pp p pn",
}
"""Kinds of arguments: pointers, numbers, floats."""
_FALLIBLE = ("add_low_rank", "attend", "look")
"""What needs memory of its own, and says whether there was none."""


def digest() -> str:
    """Names the version of the source, as ``build_native`` does; what was built from another is not
    used."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """What was built from the source beside this file, None where there is no such thing."""
    is_old = (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    )
    if is_old or not BUILT.exists():
        return None
    try:
        found = ctypes.CDLL(str(BUILT))
        found.source.restype = ctypes.c_char_p
        if found.source() != digest().encode():
            return None
        for name, kinds in _SIGNATURES.items():
            function = getattr(found, name)
            function.argtypes = [_KINDS[kind] for kind in kinds if kind != " "]
            function.restype = ctypes.c_int if name in _FALLIBLE else None
    except (OSError, AttributeError):  # made for another machine, or damaged
        return None
    return found


def is_usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether tensors like these may be given to the library."""
    return device.type == "cpu" and dtype == torch.float32 and library() is not None


def takes(x: Tensor) -> bool:
    """Whether the library computes with this tensor: no gradient is wanted, its rows are
    contiguous."""
    return not torch.is_grad_enabled() and is_usable(x.device, x.dtype) and x.stride(-1) == 1


@dataclass(frozen=True)
class Pointers:
    """Where the factors of one site lie: addresses of arrays with an entry per owner, held in
    ``held``.

    What ends in ``_at`` is an address: of ``(members,)`` columns and widths, of ``(owners,)`` ranks
    and scales, of ``(members, owners)`` addresses of A and of Bᵀ. A rank of 0 has no factors.
    ``width`` is of all outputs.
    """

    d_in: int
    width: int
    members: int
    columns_at: int
    widths_at: int
    owners: int
    ranks_at: int
    scales_at: int
    a_at: int
    b_at: int
    held: tuple[object, ...]


class Addresses:
    """Knows where the vectors of placed adapters lie, and points at them."""

    def __init__(
        self, sites: Sequence[Sequence[tuple[str, int, int]]], layout: AdapterLayout, slots: int
    ) -> None:
        # One more entry: the bare host, slot -1, is the last and has rank 0.
        self._ranks, self._bases = np.zeros((2, slots + 1), dtype=np.int64)
        self._scales = np.zeros(slots + 1, dtype=np.float32)
        starts = _starts(layout)
        modules = [
            [
                (name, d_in, d_out, column)
                for (name, d_in, d_out), column in zip(site, _columns(site), strict=True)
                if name in starts
            ]
            for site in sites
        ]
        self._counts = [len(site) for site in modules]
        self._totals = [sum(d_out for _, _, d_out in site) for site in sites]
        flat = [module for site in modules for module in site]
        self._d_ins = np.array([d_in for _, d_in, _, _ in flat])
        self._starts = np.array([starts[name] for name, _, _, _ in flat])
        self._widths = np.array([d_out for _, _, d_out, _ in flat], dtype=np.int64)
        self._columns = np.array([column for _, _, _, column in flat], dtype=np.int64)

    def place(self, slot: int, weights: AdapterWeights | None) -> None:
        """Notes where an adapter lies, which must live for as long as it is noted; None forgets."""
        if weights is None:
            self._ranks[slot] = 0
            return
        self._ranks[slot], self._scales[slot] = weights.rank, weights.scaling
        self._bases[slot] = weights.vector.ctypes.data

    def of(self, owners: Sequence[int], held: tuple[object, ...]) -> tuple[Pointers | None, ...]:
        """For each site, where its factors lie; ``held`` are what owns the memory."""
        rows = np.array(owners, dtype=np.int64)
        ranks, scales = self._ranks[rows], self._scales[rows]
        if not ranks.any():
            return (None,) * len(self._counts)
        a = self._bases[rows] + 4 * ranks * self._starts[:, None]
        b = a + 4 * ranks * self._d_ins[:, None]
        kept = (self, ranks, scales, a, b, *held)
        columns, widths, ranks_at, scales_at, a_at, b_at = (
            one.ctypes.data for one in (self._columns, self._widths, ranks, scales, a, b)
        )
        found: list[Pointers | None] = []
        first = 0
        for count, total in zip(self._counts, self._totals, strict=True):
            here, there = 8 * first, 8 * first * len(rows)
            found.append(
                Pointers(
                    int(self._d_ins[first]),
                    total,
                    count,
                    columns + here,
                    widths + here,
                    len(rows),
                    ranks_at,
                    scales_at,
                    a_at + there,
                    b_at + there,
                    kept,
                )
                if count
                else None
            )
            first += count
        return tuple(found)


def add_low_rank(
    x: Tensor, y: Tensor, pointers: Pointers, counts: Sequence[int], *, is_gated: bool = False
) -> Tensor:
    """``y (tokens, Σ d_outs)`` with the owners' terms for ``x (tokens, d_in)``, in place.

    Gated, ``gate`` of that instead, ``(tokens, Σ d_outs / 2)``, in the same pass.
    """
    tokens, total = _counted(tuple(counts))
    if (
        x.shape != (total, pointers.d_in)
        or y.shape != (total, pointers.width)
        or len(tokens) != pointers.owners
    ):
        raise IndexError(
            f"expected {total} tokens of {pointers.owners} owners, got {x.shape} and {y.shape}"
        )
    x = x if x.stride(1) == 1 else x.contiguous()
    _check(x, y)
    half = y.shape[1] // 2
    found = y.new_empty(total, half) if is_gated else y
    _done(
        _library().add_low_rank(
            *(x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0)),
            *(pointers.d_in, pointers.members, pointers.columns_at, pointers.widths_at),
            *(pointers.owners, tokens.ctypes.data, pointers.ranks_at, pointers.scales_at),
            *(pointers.a_at, pointers.b_at),
            *(found.data_ptr() if is_gated else None, half, torch.get_num_threads()),
        )
    )
    return found


def normalize(x: Tensor, norm: Norm) -> Tensor:
    """Rows of ``x (rows, width)`` normed."""
    out = x.new_empty(x.shape)
    _library().normalize(
        *(*x.shape, x.data_ptr(), x.stride(0)),
        *(norm.weight.data_ptr(), norm.eps, out.data_ptr(), torch.get_num_threads()),
    )
    return out


def gate(x: Tensor) -> Tensor:
    """``silu(gate) · up`` of gate and up side by side, ``(rows, 2 · width)`` to
    ``(rows, width)``."""
    out = x.new_empty(x.shape[0], x.shape[1] // 2)
    _library().gate(
        *(*out.shape, x.data_ptr(), x.stride(0), out.data_ptr(), torch.get_num_threads())
    )
    return out


def turn(x: Tensor, norm: Norm | None, table: Tensor, positions: Tensor) -> Tensor:
    """Heads ``(tokens, heads, head_dim)`` normed and turned by their positions (see
    ``caches.turn``)."""
    tokens, heads, size = x.shape
    low, high = (int(one) for one in positions.aminmax())
    if tokens != len(positions) or low < 0 or high >= table.shape[1] or x.stride(1) != size:
        raise IndexError(f"expected positions below {table.shape[1]} for {tokens} tokens")
    _check(x, table)
    out = x.new_empty(x.shape)
    _library().turn_all(
        *(tokens, heads, size, x.data_ptr(), x.stride(0)),
        *(None if norm is None else norm.weight.data_ptr(), 0.0 if norm is None else norm.eps),
        *(table.data_ptr(), table[1].data_ptr(), positions.data_ptr()),
        *(out.data_ptr(), torch.get_num_threads()),
    )
    return out


def attend(
    heads: Tensor, sight: Sight, cache: Tensor, entries: np.ndarray, lengths: np.ndarray
) -> Tensor:
    """Puts the newest key and value of each row into the cache; what its queries see,
    ``(rows, width)``.

    Args:
        heads: queries, keys and values as the host made them,
        ``(rows, heads + 2 · kv_heads, head_dim)``. sight: how this layer looks at its cache. cache:
        keys and values of one layer, ``(2, entries, kv_heads, room, head_dim)``. entries: where in
        the cache each row is, int64. lengths: tokens that each row has there already, int64.
    """
    rows, count, size = heads.shape
    _, held, kv_heads, room, _ = cache.shape
    queries, table, norm = count - 2 * kv_heads, sight.table, sight.norm
    is_in = _below(lengths, min(room, table.shape[1])) and _below(entries, held)
    if not is_in or not len(entries) == len(lengths) == rows or cache.shape[4] != size:
        raise IndexError(f"expected rows with room in a cache of {held} entries of {room} tokens")
    _check(heads, table, cache)
    seen = heads.new_empty(rows, queries * size)
    _done(
        _library().attend(
            *(rows, queries, kv_heads, size),
            *(heads.data_ptr(), heads.stride(0)),
            *(None if norm is None else norm.weight.data_ptr(), 0.0 if norm is None else norm.eps),
            *(table.data_ptr(), table[1].data_ptr()),
            *(cache.data_ptr(), cache[1].data_ptr(), room),
            *(entries.ctypes.data, lengths.ctypes.data),
            *(sight.window or 0, sight.scale),
            *(seen.data_ptr(), torch.get_num_threads()),
        )
    )
    return seen


def fill(
    cache: Tensor, turned: Tensor, values: Tensor, starts: np.ndarray, lengths: np.ndarray
) -> None:
    """Puts prompts' keys and values into a layer's ``cache (2, rows, kv_heads, room, head_dim)``.

    ``turned (tokens, heads + kv_heads, head_dim)`` and ``values (tokens, kv_heads, head_dim)`` are
    those of a line of tokens, in which each row's prompt has a start and a length.
    """
    _, rows, kv_heads, room, size = cache.shape
    tokens = len(turned)
    is_in = (
        _below(lengths, room + 1)
        and _below(starts, tokens)
        and _below(starts + lengths, tokens + 1)
    )
    if not is_in or not len(starts) == len(lengths) == rows or turned.shape[2] != size:
        raise IndexError(f"expected prompts of {rows} rows of at most {room} tokens among {tokens}")
    _check(turned, values, cache)
    _library().fill(
        *(rows, starts.ctypes.data, lengths.ctypes.data),
        *(turned.shape[1] - kv_heads, kv_heads, size, room),
        *(turned.data_ptr(), turned.stride(0), values.data_ptr(), values.stride(0)),
        *(cache[0].data_ptr(), cache[1].data_ptr(), torch.get_num_threads()),
    )


def look(turned: Tensor, values: Tensor, stretches: np.ndarray, sight: Sight) -> Tensor:
    """What the tokens of a line see, ``(looking tokens, heads · head_dim)``; the line as in
    ``fill``.

    ``stretches (…, 6)`` are of int64: where one starts and how many tokens it has, where the past
    that it sees starts and how many tokens that has, which of its tokens is the first to look, and
    where in the output what that one sees belongs.
    """
    start, count, past, past_count, first, to = stretches.T
    looking, tokens = int((count - first).sum()), len(turned)
    ends = start + count, past + past_count
    is_in = stretches.min() >= 0 and (first < count).all() and _below(np.maximum(*ends), tokens + 1)
    if not is_in or not _below(to + count - first, looking + 1) or len(values) != tokens:
        raise IndexError(f"expected stretches of a line of {tokens} tokens")
    _check(turned, values)
    kv_heads, size = values.shape[1:]
    heads = turned.shape[1] - kv_heads
    seen = turned.new_empty(looking, heads * size)
    _done(
        _library().look(
            *(len(stretches), stretches.ctypes.data, heads, kv_heads, size),
            *(turned.data_ptr(), turned.stride(0), values.data_ptr(), values.stride(0)),
            *(sight.window or 0, sight.scale, seen.data_ptr(), torch.get_num_threads()),
        )
    )
    return seen


def _library() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise RuntimeError("expected the compiled passes, found none: install the package again")
    return found


def _check(*tensors: Tensor) -> None:
    """The library reads float32 whose rows (heads, places) are contiguous, whatever it is given."""
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise TypeError(
                f"expected float32 on a CPU, got {tensor.dtype} on {tensor.device}: no autocast here"
            )
        if tensor.stride(-1) != 1 or (tensor.dim() == 3 and tensor.stride(1) != tensor.shape[2]):
            raise ValueError(f"expected contiguous rows, got strides {tensor.stride()}")
        if tensor.dim() == 5 and not tensor[0].is_contiguous():
            raise ValueError(
                f"expected a contiguous layer of the cache, got strides {tensor.stride()}"
            )


def _below(numbers: np.ndarray, end: int) -> bool:
    """Whether all of them are int64 in ``[0, end)``: seen as unsigned, negative ones are very
    large."""
    is_plain = numbers.dtype == np.int64 and numbers.flags.c_contiguous
    return is_plain and bool(numbers.view(np.uint64).max() < end)


def _done(failed: int) -> None:
    if failed:
        raise torch.OutOfMemoryError("no memory for the compiled passes")


def _starts(layout: AdapterLayout) -> Mapping[str, int]:
    """Where each module's A starts in a vector of rank 1."""
    return {name: a.start for name, a, _, _, _ in layout.blocks(1)}


def _columns(site: Sequence[tuple[str, int, int]]) -> list[int]:
    """Where each member's outputs start."""
    return [int(start) for start in np.cumsum([0, *(d_out for _, _, d_out in site)])[:-1]]


@lru_cache(maxsize=64)
def _counted(counts: tuple[int, ...]) -> tuple[np.ndarray, int]:
    return np.array(counts, dtype=np.int64), sum(counts)
