"""The compiled passes do what their few lines of torch do, at any size and with any number of
threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings

from native_cases import low_rank_cases, made, plain_attention
from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.base.types import HOST_SLOT
from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.extensions.native.back_end import Addresses
from symbiont_ecology.model.backend.attention import AttentionSpec, RMSNorm, apply_rotary
from symbiont_ecology.model.packing import STRETCH

pytestmark = pytest.mark.skipif(
    native_ops.library() is None, reason="no compiler when this was installed"
)


@pytest.fixture(autouse=True, params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    with torch.no_grad():
        yield
    torch.set_num_threads(before)


def a_norm(*size: int) -> RMSNorm:
    return RMSNorm(1 + 0.1 * made(*size), 1e-6)


@settings(deadline=None, max_examples=60)
@given(**low_rank_cases(0))
def test_low_rank_terms(
    ranks: list[int], counts: list[int], d_in: int, d_outs: list[int], absent: int
) -> None:
    site = [(f"m{index}", d_in, d_out) for index, d_out in enumerate(d_outs)]
    layout = AdapterLayout(
        tuple(one for index, one in enumerate(site) if index != absent or len(site) == 1)
    )
    addresses, generator = Addresses((tuple(site),), layout, len(ranks)), np.random.default_rng(0)
    placed = {
        slot: AdapterWeights.random(layout, rank, 0.5 + slot, generator, b_std=1.0)
        for slot, rank in enumerate(ranks)
        if rank
    }
    for slot, weights in placed.items():
        addresses.place(slot, weights.vector.ctypes.data, weights)
    owners, counts = [HOST_SLOT, *range(len(ranks))], [3, *counts[: len(ranks)]]
    x, y = made(sum(counts), d_in), made(sum(counts), sum(d_outs))
    expected = y.double()
    first = 0
    for owner, count in zip(owners, counts, strict=True):
        column = 0
        for name, _, d_out in site:
            if owner in placed and any(name == one for one, _, _ in layout.modules):
                delta = torch.from_numpy(placed[owner].delta(name)).double()
                expected[first : first + count, column : column + d_out] += (
                    x[first : first + count].double() @ delta.T
                )
            column += d_out
        first += count
    (pointers,) = addresses.of(owners)
    if pointers is None:
        assert not placed
    else:
        again = y.clone()
        native_ops.add_low_rank(x, y, pointers, counts)
        if y.shape[1] % 2 == 0:  # as when it holds gate and up
            found = native_ops.add_low_rank(x, again, pointers, counts, is_gated=True)
            torch.testing.assert_close(found, native_ops.swiglu(y), atol=0, rtol=0)
    scale = expected.abs().max().clamp(min=1)
    torch.testing.assert_close(y.double() / scale, expected / scale, atol=2e-6, rtol=0)


@pytest.mark.parametrize("width", [1, 4, 8, 12, 24, 128, 172, 352])
def test_norms_and_gates(width: int) -> None:
    x, norm = made(37, 2 * width) * 30, a_norm(width)
    torch.testing.assert_close(native_ops.swiglu(x), F.silu(x[:, :width]) * x[:, width:])
    expected = F.rms_norm(x[:, :width], (width,), norm.weight, norm.eps)
    torch.testing.assert_close(native_ops.normalize(x[:, :width], norm), expected)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size"), [(4, 2, 32), (3, 1, 8), (2, 2, 40), (9, 1, 6)]
)
@pytest.mark.parametrize("window", [None, 5, 16])
@pytest.mark.parametrize("is_normed", [True, False])
def test_attention_of_prompts_answers_and_newest_tokens(
    heads: int, kv_heads: int, size: int, window: int | None, is_normed: bool
) -> None:
    """Three rows: a prompt with an answer, the same prompt with another one, and a prompt alone."""
    prompts, answers = (19, 30), (7, 1)
    table = torch.stack([made(64, size).cos(), made(64, size).sin()])
    norm = a_norm(heads + kv_heads, size) if is_normed else None
    spec = AttentionSpec(norm, window, table, size**-0.5, kv_heads)
    lengths = [*prompts, *answers]
    starts = np.cumsum([0, *lengths])[:-1]
    heads_of = made(sum(lengths), heads + 2 * kv_heads, size)
    positions = torch.cat(
        [torch.arange(one) for one in prompts] + [prompts[0] + torch.arange(one) for one in answers]
    )
    rotated = native_ops.rope(heads_of[:, : heads + kv_heads], spec, positions)
    torch.testing.assert_close(
        apply_rotary(heads_of[:, : heads + kv_heads], spec, positions), rotated
    )
    values = heads_of[:, heads + kv_heads :]
    spans = [
        (starts[0], 19, -1, 0),
        (starts[1], 30, -1, 0),
        (starts[2], 7, 0, 19),
        (starts[3], 1, 0, 19),
    ]
    stretches = np.array([(*span, 0, span[0]) for span in spans], dtype=STRETCH)
    seen = native_ops.attention(rotated, values, stretches, spec)
    for (start, count, _, past_count), _ in zip(spans, lengths, strict=True):
        line = [*range(past_count), *range(start, start + count)]
        expected = plain_attention(rotated[line], values[line], heads, window, spec.scale)
        torch.testing.assert_close(
            seen[start : start + count], expected[past_count:], atol=2e-6, rtol=1e-5
        )
    # From the last tokens alone.
    entries = [(*span, span[1] - 1, index) for index, span in enumerate(spans)]
    last = np.array(entries, dtype=STRETCH)
    ends = [span[0] + span[1] - 1 for span in spans]
    torch.testing.assert_close(native_ops.attention(rotated, values, last, spec), seen[ends])

    # The newest token of each row, behind what the cache holds, is the last of a line that holds it
    # all.
    cache = torch.full((2, 3, kv_heads, 40, size), torch.nan)
    firsts, counts = starts[[0, 0, 1]], np.array([19, 19, 30])
    pieces = np.stack([np.arange(3), np.zeros(3, int), firsts, counts], axis=1)
    native_ops.write_kv(cache, rotated, values, pieces)
    entries, newest = np.array([2, 0]), made(2, heads + 2 * kv_heads, size)
    found = native_ops.decode_attention(newest, spec, cache, entries, counts[entries])
    for index, (entry, one) in enumerate(zip(entries, newest, strict=True)):
        prompt = range(firsts[entry], firsts[entry] + counts[entry])
        place = torch.tensor([counts[entry]])
        own = apply_rotary(one[None, : heads + kv_heads], spec, place)
        line = torch.cat([rotated[list(prompt)], own])
        states = torch.cat([values[list(prompt)], one[None, heads + kv_heads :]])
        expected = plain_attention(line, states, heads, window, spec.scale)[-1]
        torch.testing.assert_close(found[index], expected, atol=2e-6, rtol=1e-5)
        assert cache[:, entry, :, counts[entry]].isfinite().all()


@pytest.mark.parametrize("window", [None, 5])
def test_tokens_of_one_prompt_are_rows_that_share_an_entry(window: int | None) -> None:
    """A row that goes on, and two prompts beside it."""
    heads, kv_heads, size, lengths = 4, 2, 32, np.array([19, 30])
    table = torch.stack([made(64, size).cos(), made(64, size).sin()])
    spec = AttentionSpec(a_norm(heads + kv_heads, size), window, table, size**-0.5, kv_heads)
    heads_of = made(1 + int(lengths.sum()), heads + 2 * kv_heads, size)
    positions = torch.from_numpy(np.concatenate([np.arange(count) for count in lengths]))
    rotated = native_ops.rope(heads_of[1:, : heads + kv_heads], spec, positions)
    spans = [(0, 19, -1, 0, 0, 0), (19, 30, -1, 0, 0, 19)]
    values = heads_of[1:, heads + kv_heads :]
    expected = native_ops.attention(rotated, values, np.array(spans, dtype=STRETCH), spec)
    cache = torch.full((2, 3, kv_heads, 40, size), torch.nan)
    cache[:, 1, :, :8] = made(2, kv_heads, 8, size)
    alone = native_ops.decode_attention(heads_of[:1], spec, cache, np.array([1]), np.array([8]))
    entries = np.repeat([1, 2, 0], [1, *lengths])
    seen = native_ops.decode_attention(heads_of, spec, cache, entries, np.array([8, *positions]))
    torch.testing.assert_close(seen[1:], expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(seen[:1], alone, atol=0, rtol=0)
    assert cache[:, 2, :, :19].isfinite().all()


def test_softmax_of_extreme_scores() -> None:
    spec = AttentionSpec(None, None, torch.stack([torch.ones(9, 8), torch.zeros(9, 8)]), 1.0, 1)
    heads = torch.zeros(1, 3, 8)
    heads[0, 0, 0], cache = 1.0, torch.zeros(2, 1, 1, 9, 8)
    cache[0, 0, 0, :8, 0] = torch.tensor([-1e30, -200.0, -88.0, 300.0, 299.0, 0.0, -3e38, 1e20])
    cache[1, 0, 0, :8, 0] = torch.arange(8.0)
    found = native_ops.decode_attention(heads, spec, cache, np.array([0]), np.array([8]))
    torch.testing.assert_close(found[0, 0], torch.tensor(7.0))


SPEC = AttentionSpec(None, None, torch.zeros(2, 4, 8), 1.0, 1)
ONE = np.array([(0, 1, -1, 0, 0, 0)], STRETCH)


def newest(
    entry: int = 0,
    length: int = 0,
    heads: torch.Tensor | None = None,
    kv_heads: int = 1,
    norm: RMSNorm | None = None,
) -> object:
    cache, spec = torch.zeros(2, 1, kv_heads, 9, 8), dataclasses.replace(SPEC, norm=norm)
    rows = torch.zeros(1, 3, 8) if heads is None else heads
    places = np.array([entry]), np.array([length])
    return native_ops.decode_attention(rows, spec, cache, *places)


def seen(heads: int, kv_heads: int, stretches: np.ndarray) -> object:
    return native_ops.attention(made(1, heads, 8), made(1, kv_heads, 8), stretches, SPEC)


def laid(heads: int, kv_heads: int, tokens: int) -> object:
    parts = made(1, heads, 8), made(1, kv_heads, 8), np.array([[0, 0, 0, tokens]])
    return native_ops.write_kv(torch.zeros(2, 1, kv_heads, 9, 8), *parts)


def turned(position: int, norm: RMSNorm | None = None) -> object:
    spec = dataclasses.replace(SPEC, norm=norm)
    return native_ops.rope(torch.zeros(1, 2, 8), spec, torch.tensor([position]))


MISFITS: list[Callable[[], object]] = [
    *(partial(newest, *place) for place in ((1, 0), (0, 4), (0, 9), (-1, 0), (0, -1))),
    *(partial(newest, norm=a_norm(*size)) for size in ((8,), (2, 4), (3, 8))),
    partial(newest, heads=made(1, 5, 8), kv_heads=2),  # three heads cannot share two key heads
    partial(seen, 2, 1, np.array([(0, 2, -1, 0, 0, 0)], STRETCH)),
    partial(seen, 5, 2, ONE),
    partial(seen, 6, 2, np.array([[0, 1, -1, 0, 0, 0]])),  # numbers without names
    partial(seen, 2, 2, ONE),  # no head at all
    partial(laid, 2, 1, 2),
    partial(laid, 5, 2, 1),
    *(partial(turned, position) for position in (4, -1)),
    *(partial(turned, 0, a_norm(*size)) for size in ((8,), (2, 4), (3, 8))),
    *(partial(native_ops.normalize, made(3, 8), a_norm(size)) for size in (0, 1, 4, 9)),
    partial(native_ops.swiglu, made(3, 1)),
]


@pytest.mark.parametrize("call", MISFITS)
def test_sizes_that_do_not_fit_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(IndexError):
        call()


def test_other_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="autocast"):
        newest(heads=torch.zeros(1, 3, 8).bfloat16())
    with pytest.raises(ValueError, match="contiguous"):
        newest(heads=torch.zeros(1, 8, 3).transpose(1, 2))
    layout = AdapterLayout((("m", 8, 8),))
    addresses = Addresses((layout.modules,), layout, 1)
    weights = AdapterWeights.random(layout, 1, 1.0, np.random.default_rng(0))
    addresses.place(0, weights.vector.ctypes.data, weights)
    (pointers,) = addresses.of([0])
    assert pointers is not None
    for x, y in ((made(2, 8), made(2, 8)), (made(1, 9), made(1, 8)), (made(1, 8), made(1, 9))):
        with pytest.raises(IndexError):
            native_ops.add_low_rank(x, y, pointers, [1])


def test_a_vector_that_is_not_contiguous_is_copied() -> None:
    layout, two = AdapterLayout((("m", 8, 8),)), made(16, 2).numpy()
    assert AdapterWeights(layout, 1, 1.0, two[:, 0]).vector.flags.c_contiguous
