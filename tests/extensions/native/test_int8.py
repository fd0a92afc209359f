"""Base weights of eight bits: nearly the same host, named as another one, adapters learn on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hosts import PROMPTS, make_host, random_weights
from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.types import Decoding, Request
from symbiont_ecology.extensions.native.int8 import MAX_TERMS, Rounded, ways
from symbiont_ecology.model.kernel import HostKernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_host(tmp_path_factory.mktemp("host"), "qwen2", layers=3)


def kernel_of(folder: Path, dtype: str) -> HostKernel:
    kernel = HostKernel.from_pretrained(folder, slots=2, rank=4, dtype=dtype)
    for slot in range(2):
        kernel.place(slot, random_weights(kernel.layout, slot, rank=4))
    return kernel


def test_a_product_is_near_and_a_token_does_not_see_its_neighbours() -> None:
    x, weights = torch.randn(300, 96), torch.randn(96, 64)
    whole, scales = Rounded().quantized(weights)
    found = Rounded().product(x, whole, scales)
    assert (found - x @ weights).norm() / (x @ weights).norm() < 0.02
    for row in (0, 7, 299):
        assert torch.equal(Rounded().product(x[row : row + 1], whole, scales)[0], found[row])


@settings(deadline=None, max_examples=60)
@given(
    tokens=st.integers(1, 30),
    d_in=st.sampled_from([1, 2, 31, 64, MAX_TERMS, MAX_TERMS + 1, 2 * MAX_TERMS + 3]),
    d_out=st.sampled_from([1, 7, 16, 63, 64, 130]),
    largest=st.floats(1e-20, 1e20),
    threads=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_all_ways_to_multiply_give_the_same_bits(
    tokens: int, d_in: int, d_out: int, largest: float, threads: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(tokens, d_in + 3, generator=generator) * largest
    x, weights = wide[:, 1:-2], torch.randn(d_in, d_out + 2, generator=generator)
    if seed % 3 == 0:  # the largest sums that there are
        x, weights = x.sign() * largest, weights.abs().ceil()
    whole, scales = (part[..., 1:-1] for part in Rounded().quantized(weights))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        products = {name: way(x, whole, scales) for name, way in ways().items()}
    finally:
        torch.set_num_threads(before)
    for name, found in products.items():
        assert torch.equal(found, products["floats"]), name


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_not_hidden(number: float) -> None:
    x, (whole, scales) = torch.ones(3, 20), Rounded().quantized(torch.ones(20, 4))
    for column in (0, 9, 19):
        x[1, column] = number
        for way in ways().values():
            found = way(x, whole, scales)
            assert found[[0, 2]].isfinite().all()
            assert not found[1].isfinite().any()
        x[1, column] = 1


def test_its_gradient_is_that_of_the_weights_that_the_bits_stand_for() -> None:
    x, weights = torch.randn(20, 96, requires_grad=True), torch.randn(96, 64)
    whole, scales = Rounded().quantized(weights)
    dy = torch.randn(20, 64)
    Rounded().product(x, whole, scales).backward(dy)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, dy @ (whole * scales).t(), atol=1e-4, rtol=1e-5)


def test_the_host_says_nearly_the_same_and_has_another_fingerprint(folder: Path) -> None:
    single, eight = kernel_of(folder, "float32"), kernel_of(folder, "int8")
    assert single.fingerprint() != eight.fingerprint()
    assert single.shape == eight.shape
    rows = [Request(prompt, slot, 8) for prompt in PROMPTS for slot in (-1, 0, 1)]
    answers = [one.token_ids for one in single.rollout(rows, None, Decoding(min_new_tokens=8))]
    prompts, slots = [row.prompt for row in rows], [row.slot for row in rows]
    ours, theirs = (torch.cat(kernel.score(prompts, answers, slots)) for kernel in (eight, single))
    assert 0 < (ours - theirs).abs().mean() < 0.05
    eight.rollout(rows, None, Decoding(min_new_tokens=8))


def test_it_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="Llama-like"):
        HostKernel.from_pretrained(make_host(tmp_path, "gpt2", layers=2), dtype="int8")
