"""Compiled operations of ``cpu_kernels.c`` as functions of tensors, and their gradients.

A wheel for Linux and a checkout bring the library. On other Linux machines the first process that
wants it compiles it, into the user's cache folder. The operations take float32 on a CPU. Each
function checks what only tensors know, such as their type, and says how much there is behind each
address; the C code checks that all of it fits together. A function ``…_back`` returns the gradient
of the input from that of the output ``dy``, and computes again what the forward operation did not
keep.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import platformdirs
import torch
from torch import Tensor

from symbiont_ecology.extensions.native.compiling import BUILT, SOURCE, compile_library, digest
from symbiont_ecology.model.backend.attention import AttentionSpec, RMSNorm
from symbiont_ecology.model.packing import STRETCH

_KINDS = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float}
_SIGNATURES = {
    "add_low_rank": "n pnn pnn npp nppp pp pnn",
    "attention": "np nnnn pn pn nf pnn",
    "attention_back": "np nnnn pn pn nf pn ppn n",
    "decode_attention": "nnnn pn pnf ppn ppnn pp nf pn",
    "low_rank_back": "n pnn pnn npp nppp pp ppp n",
    "multiply_rounded": "nn pn pn n pn pn",
    "normalize": "nn pn pnf pn",
    "normalize_back": "nn pn pnf pn pn",
    "rope": "nnn pn pnf ppn p pn",
    "rope_back": "nnn pn pnf ppn p p pn n",
    "round_rows": "nn pn pp n",
    "scale_sums": "nn pp pn p n",
    "swiglu": "nn pn pn",
    "swiglu_back": "nn pn pn pn",
    "write_kv": "np nnnn pn pn ppnn n",
}
"""Kinds of arguments: pointers, numbers, floats. The last one is always the number of threads."""
_NO_MEMORY, _MISFIT = 1, 2
"""Return values of operations, 0 where all went well."""


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the library of the source beside this file, None where there is none."""
    return find_library()[0]


def find_library(
    source: Path = SOURCE, built: Path = BUILT, cache: Path | None = None
) -> tuple[ctypes.CDLL | None, str]:
    """Return the library of a source, compiled if need be, and the reason if there is none.

    Args:
        source: the C file.
        built: the library that came with the package, whether it is there or not.
        cache: the folder for what is compiled here, the user's own if None.
    """
    is_intel = platform.machine() in ("x86_64", "AMD64")
    if is_intel and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None, "this processor has no AVX2"
    version = digest(source)
    found = _load(built, version)
    if found or sys.platform != "linux":  # on a Mac, asking for a compiler may open a window
        return found, "" if found else "they come with Linux alone"
    folder = cache or platformdirs.user_cache_path("symbiont", appauthor=False) / "passes"
    path = folder / f"cpu_kernels-{version}-{platform.machine()}.so"
    if not path.exists() and (trouble := compile_library(path, source)):
        return None, trouble
    found = _load(path, version)
    return found, "" if found else f"{path} does not load: delete it"


def _load(path: Path, version: str) -> ctypes.CDLL | None:
    """Return the library in a file, None if it is not of this version or for another machine."""
    if not path.exists():
        return None
    try:
        found = ctypes.CDLL(str(path))
        found.source.restype = ctypes.c_char_p
        if found.source() != version.encode():
            return None
        for name, kinds in _SIGNATURES.items():
            function = getattr(found, name)
            function.argtypes = [_KINDS[kind] for kind in kinds if kind != " "]
            function.restype = ctypes.c_int
    except (OSError, AttributeError):  # made for another machine, or damaged
        return None
    return found


@dataclass(frozen=True)
class Pointers:
    """Addresses of the factors of one site: a ``lowrank.LowRankTerm``.

    ``size`` are the widths of the input and of all outputs. ``site`` are the number of members and
    the addresses of their columns and widths, ``(members,)`` each. ``factors`` are the addresses of
    ranks and scales, ``(owners,)`` each, and of the addresses of A and of Bᵀ,
    ``(members, owners)`` each. A rank of 0 has no factors. ``memory`` is all that must live as long
    as the addresses are used.
    """

    size: tuple[int, int]
    owners: int
    site: tuple[int, int, int]
    factors: tuple[int, int, int, int]
    memory: tuple[object, ...]

    def add_to(self, y: Tensor, x: Tensor, shares: object) -> Tensor:
        assert isinstance(shares, Sequence)  # tiles are for torch
        return add_low_rank(x, y, self, shares)


def add_low_rank(
    x: Tensor, y: Tensor, pointers: Pointers, counts: Sequence[int], *, is_gated: bool = False
) -> Tensor:
    """Add the owners' terms for ``x (tokens, d_in)`` to ``y (tokens, Σ d_outs)``, in place.

    Gated, return ``swiglu`` of that instead, ``(tokens, Σ d_outs / 2)``, in the same pass.
    """
    tokens, total = token_counts(tuple(counts))
    d_in, width = pointers.size
    if x.shape != (total, d_in) or y.shape != (total, width) or len(tokens) != pointers.owners:
        raise IndexError(
            f"expected {total} tokens of {pointers.owners} owners, got {x.shape} and {y.shape}"
        )
    x = x if x.stride(1) == 1 else x.contiguous()
    check_plain(x, y)
    half = width // 2
    out = y.new_empty(total, half) if is_gated else y
    call_native(
        "add_low_rank",
        *(total, x.data_ptr(), x.stride(0), d_in, y.data_ptr(), y.stride(0), width),
        *(*pointers.site, pointers.owners, tokens.ctypes.data, *pointers.factors),
        *(out.data_ptr() if is_gated else None, half),
    )
    return out


def normalize(x: Tensor, norm: RMSNorm) -> Tensor:
    """Return the rows of ``x (rows, width)`` normed."""
    check_plain(x)
    out = x.new_empty(x.shape)
    call_native(
        "normalize", *x.shape, *(x.data_ptr(), x.stride(0)), *norm_arguments(norm), out.data_ptr()
    )
    return out


def swiglu(x: Tensor) -> Tensor:
    """Return ``silu(gate) · up`` of gate and up side by side, ``(rows, 2 · width)`` to
    ``(rows, width)``."""
    check_plain(x)
    out = x.new_empty(x.shape[0], x.shape[1] // 2)
    call_native("swiglu", *out.shape, x.data_ptr(), x.stride(0), out.data_ptr())
    return out


def rope(x: Tensor, spec: AttentionSpec, positions: Tensor) -> Tensor:
    """Return heads ``(tokens, heads, head_dim)`` normed and rotated (see ``apply_rotary``)."""
    turning, out = _turning(x, spec, positions), x.new_empty(x.shape)
    call_native("rope", *turning, out.data_ptr())
    return out


def _turning(x: Tensor, spec: AttentionSpec, positions: Tensor) -> tuple[float | None, ...]:
    """Return the arguments that say how heads are turned."""
    tokens, _, size = x.shape
    is_plain = positions.dtype == torch.int64 and positions.is_contiguous()
    if positions.shape != (tokens,) or not is_plain:
        raise IndexError(f"expected the positions of {tokens} tokens, got {positions.shape}")
    check_plain(x)
    norm, table = norm_arguments(spec.norm), table_arguments(spec.table, size)
    return (*x.shape, x.data_ptr(), x.stride(0), *norm, *table, positions.data_ptr())


def decode_attention(
    heads: Tensor, spec: AttentionSpec, cache: Tensor, entries: np.ndarray, lengths: np.ndarray
) -> Tensor:
    """Put the newest key and value of each row into the cache, and return the attention of its
    queries, ``(rows, width)``.

    Args:
        heads: queries, keys and values as the host made them,
            ``(rows, heads + 2 · kv_heads, head_dim)``.
        spec: of this layer's attention.
        cache: keys and values of one layer, ``(2, entries, kv_heads, room, head_dim)``.
        entries: the place of each row in the cache, int64.
        lengths: tokens that each row has there already, int64.
    """
    rows, count, size = heads.shape
    _, capacity, kv_heads, room, _ = cache.shape
    queries = count - 2 * kv_heads
    if not len(entries) == len(lengths) == rows or cache.shape[4] != size:
        raise IndexError(f"expected {rows} rows in a cache of heads of size {size}")
    check_plain(heads, cache)
    out = heads.new_empty(rows, queries * size)
    call_native(
        "decode_attention",
        *(rows, queries, kv_heads, size, heads.data_ptr(), heads.stride(0)),
        *(*norm_arguments(spec.norm), *table_arguments(spec.table, size), *_pair(cache)),
        *(capacity, room, address_of(entries), address_of(lengths)),
        *(spec.window or 0, spec.scale, out.data_ptr()),
    )
    return out


def write_kv(cache: Tensor, rotated: Tensor, values: Tensor, pieces: np.ndarray) -> None:
    """Put prompts' keys and values into a layer's ``cache (2, rows, kv_heads, room, head_dim)``.

    ``rotated (tokens, heads + kv_heads, head_dim)`` and ``values (tokens, kv_heads, head_dim)`` are
    those of a line of tokens, ``pieces (…, 4)`` its parts: row, number of the first token in the
    row, its place on the line, number of tokens.
    """
    _, rows, kv_heads, room, size = cache.shape
    tokens = len(rotated)
    if values.shape != (tokens, kv_heads, size) or rotated.shape[2] != size or pieces.shape[1] != 4:
        raise IndexError(f"expected values of {kv_heads} heads of size {size}, got {values.shape}")
    check_plain(rotated, values, cache)
    call_native(
        "write_kv",
        *(len(pieces), address_of(pieces)),
        *(rotated.shape[1] - kv_heads, kv_heads, size, tokens),
        *(rotated.data_ptr(), rotated.stride(0), values.data_ptr(), values.stride(0)),
        *(*_pair(cache), rows, room),
    )


def attention(
    rotated: Tensor, values: Tensor, stretches: np.ndarray, spec: AttentionSpec
) -> Tensor:
    """Return the attention on a line as in ``write_kv``, ``(queries, heads · head_dim)``.

    ``stretches`` are of ``packing.STRETCH``.
    """
    line = _line(rotated, values, stretches, spec)
    count = max(0, int((stretches["count"] - stretches["first"]).sum()))
    out = rotated.new_empty(count, (rotated.shape[1] - values.shape[1]) * values.shape[2])
    call_native("attention", *line, out.data_ptr(), count)
    return out


def _line(
    rotated: Tensor, values: Tensor, stretches: np.ndarray, spec: AttentionSpec
) -> tuple[float | None, ...]:
    """Return the arguments that say what stands on a line, and who looks."""
    tokens, kv_heads, size = values.shape
    if rotated.shape[::2] != (tokens, size) or stretches.dtype != STRETCH:
        raise IndexError(f"expected {tokens} tokens with heads of size {size}, got {rotated.shape}")
    check_plain(rotated, values)
    sizes = rotated.shape[1] - kv_heads, kv_heads, size, tokens
    parts = rotated.data_ptr(), rotated.stride(0), values.data_ptr(), values.stride(0)
    numbers = address_of(stretches.view(np.int64))
    return (len(stretches), numbers, *sizes, *parts, spec.window or 0, spec.scale)


def multiply_rounded(x: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    """Return ``int8.product`` of ``x (tokens, d_in)``, without gradients; ``weights (d_in, d_out)``
    are int8."""
    tokens, d_in = x.shape
    is_plain = weights.dtype == torch.int8 and weights.is_cpu and weights.stride(1) == 1
    if weights.shape[0] != d_in or not is_plain:
        raise IndexError(f"expected rows of int8 for {d_in} inputs, got {weights.shape}")
    x = x if x.stride(1) == 1 else x.contiguous()
    check_plain(x, scales)
    out = x.new_empty(tokens, weights.shape[1])
    call_native(
        "multiply_rounded",
        *(tokens, d_in, x.data_ptr(), x.stride(0), weights.data_ptr(), weights.stride(0)),
        *(weights.shape[1], scales.data_ptr(), len(scales), out.data_ptr()),
    )
    return out


def multiply_integers(x: Tensor, weights: Tensor, scales: Tensor, max_rows: int) -> Tensor:
    """Return the same, where torch multiplies the integers of ``max_rows`` rows at a time."""
    x = rows_like(x, x.shape)
    check_plain(scales)
    out = x.new_empty(len(x), weights.shape[1])
    for part, to in zip(torch.split(x, max_rows), torch.split(out, max_rows), strict=True):
        whole, units = torch.empty_like(part, dtype=torch.int8), part.new_empty(len(part))
        places = part.data_ptr(), part.stride(0), whole.data_ptr(), units.data_ptr()
        call_native("round_rows", *part.shape, *places)
        sums = torch._int_mm(whole, weights)
        factors = units.data_ptr(), scales.data_ptr(), len(scales)
        call_native("scale_sums", *sums.shape, sums.data_ptr(), *factors, to.data_ptr())
    return out


def normalize_back(x: Tensor, norm: RMSNorm, dy: Tensor) -> Tensor:
    """Return the gradient of ``x (rows, width)``."""
    dy = rows_like(dy, x.shape)
    check_plain(x)
    dx = x.new_empty(x.shape)
    call_native(
        "normalize_back",
        *(*x.shape, x.data_ptr(), x.stride(0), *norm_arguments(norm)),
        *(dy.data_ptr(), dy.stride(0), dx.data_ptr()),
    )
    return dx


def swiglu_back(x: Tensor, dy: Tensor) -> Tensor:
    """Return the gradient of ``x (rows, 2 · width)`` from ``dy (rows, width)``."""
    if x.shape[1] % 2:
        raise IndexError(f"expected gate and up side by side, got {tuple(x.shape)}")
    dy = rows_like(dy, (x.shape[0], x.shape[1] // 2))
    check_plain(x)
    dx = x.new_empty(x.shape)
    call_native(
        "swiglu_back",
        *(*dy.shape, x.data_ptr(), x.stride(0), dy.data_ptr(), dy.stride(0), dx.data_ptr()),
    )
    return dx


def rope_back(x: Tensor, spec: AttentionSpec, positions: Tensor, dy: Tensor, out: Tensor) -> None:
    """Write the gradient of ``x (tokens, heads, head_dim)`` to ``out``."""
    if not x.shape == dy.shape == out.shape:
        raise IndexError(f"expected gradients of heads {tuple(x.shape)}, got {tuple(dy.shape)}")
    turning, dy = _turning(x, spec, positions), dy.contiguous()
    check_plain(dy, out)
    call_native("rope_back", *turning, dy.data_ptr(), out.data_ptr(), out.stride(0))


def attention_back(
    rotated: Tensor,
    values: Tensor,
    stretches: np.ndarray,
    spec: AttentionSpec,
    dy: Tensor,
    d_values: Tensor,
) -> Tensor:
    """Return the gradient of ``rotated``, and write that of ``values`` to ``d_values``. All tokens
    stand on the line, none is kept from before."""
    if d_values.shape != values.shape:
        raise IndexError(f"expected gradients {tuple(values.shape)}, got {tuple(d_values.shape)}")
    rotated = rotated.contiguous()
    line, d_rotated = _line(rotated, values, stretches, spec), rotated.new_empty(rotated.shape)
    width = (rotated.shape[1] - values.shape[1]) * values.shape[2]
    dy = rows_like(dy, (len(dy), width)).contiguous()
    check_plain(d_values)
    seen = dy.data_ptr(), len(dy), d_rotated.data_ptr()
    call_native("attention_back", *line, *seen, d_values.data_ptr(), d_values.stride(0))
    return d_rotated


def low_rank_back(
    x: Tensor, dy: Tensor, pointers: Pointers, gradient: Pointers, counts: Sequence[int]
) -> Tensor:
    """Return the gradient of ``x (tokens, d_in)`` through ``add_low_rank``, from
    ``dy (tokens, Σ d_outs)``; add those of the factors where ``gradient`` points."""
    tokens, total = token_counts(tuple(counts))
    if not len(tokens) == pointers.owners == gradient.owners:
        raise IndexError(f"expected tokens of {pointers.owners} owners, got {len(tokens)}")
    d_in, width = pointers.size
    x, dy = rows_like(x, (total, d_in)), rows_like(dy, (total, width))
    dx = x.new_zeros(x.shape)
    if total:  # there is an address
        call_native(
            "low_rank_back",
            *(total, x.data_ptr(), x.stride(0), d_in),
            *(dy.data_ptr(), dy.stride(0), width, *pointers.site, pointers.owners),
            *(tokens.ctypes.data, *pointers.factors, *gradient.factors[2:], dx.data_ptr()),
        )
    return dx


def call_native(name: str, *arguments: float | None) -> None:
    """Call an operation with as many threads as torch has."""
    functions = library()
    if functions is None:
        raise RuntimeError("expected the compiled passes, found none: install the package again")
    status = getattr(functions, name)(*arguments, torch.get_num_threads())
    if status == _NO_MEMORY:
        raise torch.OutOfMemoryError("no memory for the compiled passes")
    if status == _MISFIT:
        kinds = _SIGNATURES[name].replace(" ", "")
        sizes = [size for size, kind in zip(arguments, kinds, strict=False) if kind == "n"]
        raise IndexError(f"expected sizes that fit together for {name}, got {sizes}")


@lru_cache(maxsize=1024)
def norm_arguments(norm: RMSNorm | None) -> tuple[int | None, int, float]:
    """Return address and number of the weights, and the term added to the mean square."""
    if norm is None:
        return None, 0, 0.0
    check_plain(norm.weight)
    return norm.weight.data_ptr(), norm.weight.numel(), norm.eps


@lru_cache(maxsize=16)
def table_arguments(table: Tensor, size: int) -> tuple[int, int, int]:
    """Return the addresses of cosines and sines, and the number of their positions."""
    check_plain(table)
    if table.shape[2] != size:
        raise IndexError(f"expected a rotary table of heads of size {size}, got {table.shape}")
    return *_pair(table), table.shape[1]


def _pair(pair: Tensor) -> tuple[int, int]:
    """Return the addresses of cosines and sines, or of keys and values."""
    return pair.data_ptr(), pair[1].data_ptr()


def address_of(numbers: np.ndarray) -> int:
    """Return the address of numbers that the library can read."""
    if numbers.dtype != np.int64 or not numbers.flags.c_contiguous:
        raise IndexError(f"expected contiguous numbers of int64, got {numbers.dtype}")
    return int(numbers.ctypes.data)


def rows_like(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return ``x``, which must have this shape, with contiguous rows."""
    if tuple(x.shape) != tuple(shape):
        raise IndexError(f"expected rows {tuple(shape)}, got {tuple(x.shape)}")
    if x.stride(1) != 1 or x.stride(0) < x.shape[1]:  # a sum's gradient is one number, everywhere
        x = x.contiguous()
    check_plain(x)
    return x


def check_plain(*tensors: Tensor) -> None:
    """Refuse what the library would misread: it takes float32 whose rows (heads, places) are
    contiguous."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or not tensor.is_cpu:
            raise TypeError(
                f"expected float32 on a CPU, got {tensor.dtype} on {tensor.device}: "
                "no autocast here"
            )
        strides = tensor.stride()
        if strides[-1] != 1 or (len(strides) == 3 and strides[1] != tensor.shape[2]):
            raise ValueError(f"expected contiguous rows, got strides {strides}")
        if len(strides) == 5 and not tensor[0].is_contiguous():
            raise ValueError(f"expected a contiguous layer of the cache, got strides {strides}")


@lru_cache(maxsize=64)
def token_counts(counts: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Return the number of tokens of each owner, as the library reads it, and of all."""
    return np.array(counts, dtype=np.int64), sum(counts)
