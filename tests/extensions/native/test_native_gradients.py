"""The compiled passes give back the gradients that autograd finds, at any size and with any number
of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor

from native_cases import low_rank_cases, made, plain_attention
from symbiont_ecology.adapters.adapter import AdapterLayout, AdapterWeights
from symbiont_ecology.extensions.native import native_ops
from symbiont_ecology.extensions.native.back_end import Addresses, LearningPointers, VectorLearners
from symbiont_ecology.model.backend.attention import AttentionSpec, RMSNorm, apply_rotary
from symbiont_ecology.model.backend.bank import Learners
from symbiont_ecology.model.packing import STRETCH

pytestmark = pytest.mark.skipif(
    native_ops.library() is None, reason="no compiler when this was installed"
)


@pytest.fixture(autouse=True, params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def gradient_of(work: Callable[[Tensor], Tensor], x: Tensor, dy: Tensor) -> Tensor:
    """By autograd, in double precision."""
    x = x.double().requires_grad_()
    (gradient,) = torch.autograd.grad(work(x), x, dy.double())
    return gradient


def assert_close(found: Tensor, expected: Tensor) -> None:
    scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-3)
    torch.testing.assert_close(found.double() / scale, expected / scale, atol=3e-6, rtol=0)


@pytest.mark.parametrize("width", [2, 4, 8, 12, 24, 128, 172, 352])
def test_norms_and_gates(width: int) -> None:
    x, dy = made(37, 2 * width) * 3, made(37, width)
    norm = RMSNorm(1 + 0.1 * made(width), 1e-6)
    weight = norm.weight.double()
    expected = gradient_of(lambda x: F.rms_norm(x, (width,), weight, 1e-6), x[:, :width], dy)
    assert_close(native_ops.normalize_back(x[:, :width], norm, dy), expected)
    expected = gradient_of(lambda x: F.silu(x[:, :width]) * x[:, width:], x, dy)
    assert_close(native_ops.swiglu_back(x, dy), expected)
    # A gradient that stands for many rows has no rows of its own.
    flat = dy[:1].expand(37, width)
    assert_close(
        native_ops.swiglu_back(x, flat), native_ops.swiglu_back(x, flat.contiguous()).double()
    )


def test_gates_that_are_wide_open_or_shut() -> None:
    gates = torch.tensor([[-1e30, -200.0, -88.0, -1e-30, 0.0, 88.0, 200.0, 1e30]])
    found = native_ops.swiglu_back(torch.cat([gates, torch.ones(1, 8)], 1), torch.ones(1, 8))
    assert_close(found[:, :8], torch.tensor([[0, 0, 0, 0.5, 0.5, 1, 1, 1]]).double())


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size"), [(4, 2, 32), (3, 1, 8), (2, 2, 40), (9, 1, 6)]
)
@pytest.mark.parametrize("window", [None, 5, 16])
@pytest.mark.parametrize("is_normed", [True, False])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_attention(
    heads: int, kv_heads: int, size: int, window: int | None, is_normed: bool, is_narrow: bool
) -> None:
    """A prompt in two pieces with two answers, a short one with one answer, and one alone."""
    spans = [(0, 11, -1, 0), (11, 9, 0, 11), (20, 3, -1, 0), (23, 30, -1, 0)]
    spans += [(53, 8, 1, 20), (61, 1, 1, 20), (62, 2, 2, 3)]
    # A segment with which no prompt ends is only looked at.
    firsts = [11, 8, 2, 29, 0, 0, 0] if is_narrow else [0] * 7
    to = np.cumsum([0] + [span[1] - first for span, first in zip(spans, firsts, strict=True)])
    stretches = np.array(
        [(*span, *rest) for span, rest in zip(spans, zip(firsts, to, strict=False), strict=True)],
        dtype=STRETCH,
    )
    positions = torch.cat([before + torch.arange(count) for _, count, _, before in spans])
    table = torch.stack([made(64, size).cos(), made(64, size).sin()])
    norm = RMSNorm(1 + 0.1 * made(heads + kv_heads, size), 1e-6) if is_normed else None
    spec = AttentionSpec(norm, window, table, size**-0.5, kv_heads)
    x, dy = made(64, heads + 2 * kv_heads, size), made(int(to[-1]), heads * size)
    border = heads + kv_heads

    def seen(x: Tensor) -> Tensor:
        """By torch, in double precision."""
        double = None if norm is None else RMSNorm(norm.weight.double(), norm.eps)
        precise = AttentionSpec(double, window, table.double(), spec.scale, kv_heads)
        rotated, parts = apply_rotary(x[:, :border], precise, positions), list[Tensor]()
        for (start, count, parent, _), first in zip(spans, firsts, strict=True):
            line = list(range(start, start + count))
            while parent >= 0:
                start, size, parent, _ = spans[parent]
                line = [*range(start, start + size), *line]
            out = plain_attention(rotated[line], x[line, border:], heads, window, spec.scale)
            parts.append(out[len(line) - count + first :])
        return torch.cat(parts)

    rotated = native_ops.rope(x[:, :border], spec, positions)
    assert_close(native_ops.attention(rotated, x[:, border:], stretches, spec), seen(x.double()))
    found = torch.full_like(x, torch.nan)
    d_rotated = native_ops.attention_back(
        rotated, x[:, border:], stretches, spec, dy, found[:, border:]
    )
    native_ops.rope_back(x[:, :border], spec, positions, d_rotated, found[:, :border])
    assert_close(found, gradient_of(seen, x, dy))


@settings(deadline=None, max_examples=60)
@given(**low_rank_cases(1))
def test_low_rank_terms(
    ranks: list[int], counts: list[int], d_in: int, d_outs: list[int], absent: int
) -> None:
    site = tuple((f"m{index}", d_in, d_out) for index, d_out in enumerate(d_outs))
    layout = AdapterLayout(
        tuple(one for index, one in enumerate(site) if index != absent or len(site) == 1)
    )
    counts, generator = counts[: len(ranks)], np.random.default_rng(0)
    learners = [
        AdapterWeights.random(layout, rank, 0.5 + number, generator, b_std=1.0)
        for number, rank in enumerate(ranks)
    ]
    term, gradients = a_term(site, layout, learners)
    x, dy = made(sum(counts), d_in), made(sum(counts), sum(d_outs))
    inputs = x.clone().requires_grad_()
    y = term.add_to(torch.zeros_like(dy).requires_grad_().clone(), inputs, counts)
    y.backward(dy)  # type: ignore[no-untyped-call]
    vectors = [torch.from_numpy(one.vector).double().requires_grad_() for one in learners]
    wanted = x.double().requires_grad_()
    precise = added(site, layout, learners, vectors, torch.split(wanted, counts))
    torch.autograd.backward(precise, torch.split(dy.double(), counts))
    assert inputs.grad is not None
    assert wanted.grad is not None
    assert_close(inputs.grad, wanted.grad)
    for found, vector in zip(gradients, vectors, strict=True):
        expected = torch.zeros_like(vector) if vector.grad is None else vector.grad
        assert_close(found, expected)


def a_term(
    site: tuple[tuple[str, int, int], ...],
    layout: AdapterLayout,
    learners: Sequence[AdapterWeights],
) -> tuple[LearningPointers, list[Tensor]]:
    """The terms of some adapters at their only site, and where their gradients gather."""
    gradients = [torch.zeros(len(one.vector)) for one in learners]
    factors, slopes = (Addresses((site,), layout, len(learners)) for _ in range(2))
    for number, (one, gradient) in enumerate(zip(learners, gradients, strict=True)):
        factors.place(number, one.vector.ctypes.data, one)
        slopes.place(number, gradient.data_ptr(), one)
    everyone = range(len(learners))
    ((one,), (to,)) = factors.of(everyone, learners), slopes.of(everyone, gradients)
    assert one is not None
    assert to is not None
    return LearningPointers(one, to), gradients


def added(
    site: tuple[tuple[str, int, int], ...],
    layout: AdapterLayout,
    learners: Sequence[AdapterWeights],
    vectors: Sequence[Tensor],
    parts: Sequence[Tensor],
) -> list[Tensor]:
    """What each adapter adds for its own tokens, from its vector."""
    outputs = []
    for one, vector, x in zip(learners, vectors, parts, strict=True):
        blocks = {name: (a, b) for name, a, b, _, _ in layout.blocks(one.rank)}
        columns = []
        for name, d_in, d_out in site:
            if name in blocks:
                a, b = (vector[place] for place in blocks[name])
                inner = x @ a.view(one.rank, d_in).T
                columns.append(one.scaling * inner @ b.view(one.rank, d_out))
            else:
                columns.append(x.new_zeros(len(x), d_out) + 0 * x.sum())
        outputs.append(torch.cat(columns, 1))
    return outputs


def test_threads_change_no_bit() -> None:
    """And neither do neighbours: an owner's gradient is the sum over its own tokens."""
    layout, generator = AdapterLayout((("m0", 48, 40), ("m1", 48, 24))), np.random.default_rng(0)
    learners = [AdapterWeights.random(layout, 8, 1.0, generator, b_std=1.0) for _ in range(3)]
    x, dy, counts = made(200, 48), made(200, 64), [70, 60, 70]
    everyone, alone = a_term(layout.modules, layout, learners), []
    dx = native_ops.low_rank_back(x, dy, everyone[0].factors, everyone[0].gradient, counts)
    parts = torch.split(x, counts), torch.split(dy, counts)
    for one, own, slope in zip(learners, *parts, strict=True):
        term, gradients = a_term(layout.modules, layout, [one])
        torch.set_num_threads(1)
        alone.append(native_ops.low_rank_back(own, slope, term.factors, term.gradient, [len(own)]))
        torch.testing.assert_close(gradients[0], everyone[1][len(alone) - 1], atol=0, rtol=0)
    torch.testing.assert_close(torch.cat(alone), dx, atol=0, rtol=0)


def test_both_kinds_of_learners_gather_the_same() -> None:
    site, generator = (("m0", 24, 40), ("m1", 24, 9)), np.random.default_rng(0)
    layout, counts = AdapterLayout(site), [30, 5]
    weights = [AdapterWeights.random(layout, 4, 2.0, generator, b_std=1.0)] * 2
    found = list[list[Tensor]]()
    for kind in (Learners, VectorLearners):
        learners = kind((site,), layout, weights, torch.device("cpu"), torch.float32)
        (term,) = learners.adapters([0, 1])
        assert term is not None
        x, y = made(35, 24).requires_grad_(), made(35, 49).requires_grad_().clone()
        term.add_to(y, x, counts).backward(made(35, 49) + 1)  # type: ignore[no-untyped-call]
        found.append(list(learners.gradients()))
    for one, other in zip(*found, strict=True):
        assert_close(one, other.double())


def test_what_does_not_fit_is_refused() -> None:
    norm = RMSNorm(torch.ones(8), 1e-6)
    with pytest.raises(IndexError):
        native_ops.normalize_back(made(3, 8), norm, made(3, 7))
    with pytest.raises(IndexError, match="fit together for normalize_back"):
        native_ops.normalize_back(made(3, 9), norm, made(3, 9))
    with pytest.raises(IndexError):
        native_ops.swiglu_back(made(3, 8), made(3, 8))
    with pytest.raises(IndexError, match="side by side"):
        native_ops.swiglu_back(made(3, 3), made(3, 1))
    with pytest.raises(TypeError, match="autocast"):
        native_ops.swiglu_back(made(3, 8), made(3, 4).bfloat16())
    spec = AttentionSpec(None, None, torch.zeros(2, 4, 8), 1.0, 1)
    x, out = made(1, 3, 8), made(1, 3, 8)
    one = np.array([(0, 1, -1, 0, 0, 0)], STRETCH)
    for position in (4, -1):
        place = torch.tensor([position])
        with pytest.raises(IndexError, match="fit together for rope_back"):
            native_ops.rope_back(x[:, :2], spec, place, made(1, 2, 8), out[:, :2])
    with pytest.raises(IndexError):
        native_ops.rope_back(x[:, :2], spec, torch.tensor([0]), made(1, 1, 8), out[:, :2])
    for stretches in ([(0, 2, -1, 0, 0, 0)], [(0, 1, 0, 0, 0, 0)], [(0, 1, -1, 0, 0, 1)]):
        line = np.array(stretches, STRETCH)
        with pytest.raises(IndexError, match="fit together for attention_back"):
            native_ops.attention_back(x[:, :2], x[:, 2:], line, spec, made(1, 8), out[:, 2:])
    with pytest.raises(IndexError):
        native_ops.attention_back(x[:, :2], x[:, 2:], one, spec, made(1, 16), out[:, 2:])
    with pytest.raises(IndexError):
        native_ops.attention_back(x[:, :2], x[:, 2:], one, spec, made(1, 8), out)
    layout = AdapterLayout((("m", 8, 8),))
    weights = AdapterWeights.random(layout, 1, 1.0, np.random.default_rng(0))
    term, _ = a_term(layout.modules, layout, [weights])
    for x, dy in ((made(2, 8), made(2, 8)), (made(1, 9), made(1, 8)), (made(1, 8), made(1, 9))):
        with pytest.raises(IndexError):
            native_ops.low_rank_back(x, dy, term.factors, term.gradient, [1])
