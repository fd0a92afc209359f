"""Amounts of work add up, and FLOPs in closed form are those of every matrix product."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import LARGE_HIDDEN, ROLLOUT_WITH_LESSON, Cost, HostShape

AMOUNT = st.integers(0, 10**18)
COSTS = st.builds(Cost, *[AMOUNT] * 6)
COUNT = st.integers(0, 300)
SHAPE = HostShape(
    layers=3,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    feed_forward=160,
    vocab=500,
    max_positions=1024,
    linear_parameters=64 * 32 * (4 + 2 + 2) + 128 * 64 + 3 * 64 * 160,
    parameters=0,  # costs nothing: only weights that are multiplied count
)


@given(st.lists(COSTS, max_size=8), st.randoms())
def test_costs_add_up_exactly_in_any_order(costs: list[Cost], shuffler: random.Random) -> None:
    total = sum(costs, Cost())
    shuffler.shuffle(costs)
    assert sum(costs, Cost()) == total
    assert total.flops == sum(one.flops for one in costs)
    assert TypeAdapter(Cost).validate_json(TypeAdapter(Cost).dump_json(total)) == total


@given(COUNT, st.integers(1, 50), COUNT)
def test_a_rollout_is_its_passes_one_by_one(prompt: int, new: int, lora: int) -> None:
    passes = [SHAPE.forward_flops(lora, prompt, head_positions=1)]
    passes += [
        SHAPE.forward_flops(lora, 1, context=prompt + done, head_positions=1)
        for done in range(new - 1)
    ]
    found = SHAPE.rollout_flops(lora, prompt, new)
    assert found == sum(passes)
    assert type(found) is int  # exact, however large
    spared = SHAPE.forward_flops(lora, prompt)
    assert SHAPE.executed_flops(lora, prompt, 0, new - 1) == sum(passes) - spared
    assert SHAPE.rollout_flops(lora, prompt, 0) == SHAPE.forward_flops(lora, prompt)


# The formulas against every matrix product, one by one.

WIDE = replace(SHAPE, layers=5, hidden=LARGE_HIDDEN)
LINEAR = ((64, 128), (64, 64), (64, 64), (128, 64), (64, 160), (64, 160), (160, 64))
"""Of a layer of SHAPE: queries, keys, values, output, and the three of the feed-forward part."""


def products(tokens: int, pairs: int, positions: int, layers: int = 3) -> int:
    """FLOPs of one pass of SHAPE: 2 for each multiply-add."""
    linear = sum(2 * tokens * d_in * d_out for d_in, d_out in LINEAR)
    scores_and_values = 2 * 4 * (2 * pairs * 32)
    return layers * (linear + scores_and_values) + 2 * positions * 64 * 500


@given(COUNT, COUNT, COUNT, COUNT)
def test_a_forward_pass_is_its_matrix_products(
    tokens: int, context: int, positions: int, lora: int
) -> None:
    found = SHAPE.forward_flops(lora, tokens, context, positions)
    assert found == products(tokens, tokens * (context + tokens), positions) + 2 * tokens * lora
    assert SHAPE.forward_flops(lora, tokens) == SHAPE.forward_flops(lora, tokens, 0, 0)


@given(COUNT, COUNT, COUNT)
def test_a_lesson_is_a_scoring_and_the_gradients_of_its_products(
    prompt: int, completion: int, lora: int
) -> None:
    tokens = prompt + max(completion - 1, 0)  # the last one is predicted, and not read
    forward = SHAPE.scoring_flops(lora, prompt, completion)
    assert forward == products(tokens, tokens * tokens, completion) + 2 * tokens * lora
    # Inputs of every linear module but the first layer's queries, keys and values; queries and
    # keys, weights and values; both factors of LoRA.
    backward = products(tokens, 2 * tokens * tokens, completion)
    backward -= 2 * tokens * 64 * (128 + 64 + 64)
    backward += 2 * (2 * tokens * lora)
    assert SHAPE.learning_flops(lora, prompt, completion) == forward + backward


@given(COUNT, COUNT, COUNT)
def test_a_sketch_goes_back_through_the_upper_half_of_a_wide_host_alone(
    prompt: int, completion: int, lora: int
) -> None:
    case = lora, prompt, completion
    assert SHAPE.sketching_flops(*case) == SHAPE.learning_flops(*case)
    forward = WIDE.scoring_flops(*case)
    backward = WIDE.learning_flops(*case) - forward
    assert WIDE.sketching_flops(*case) == forward + backward * 3 // 5


@given(st.integers(8, 60), st.integers(2, 12), st.floats(0, 0.15))
def test_what_is_set_aside_pays_for_a_rollout_and_its_lesson_and_one_less_hardly_does(
    prompt: int, answer: int, share: float
) -> None:
    """Whatever part of the layers an adapter has."""
    lora = int(share * SHAPE.layers * SHAPE.linear_parameters)
    both = SHAPE.rollout_flops(lora, prompt, answer) + SHAPE.learning_flops(lora, prompt, answer)
    rollouts = both / SHAPE.rollout_flops(0, prompt, answer)
    assert ROLLOUT_WITH_LESSON - 1.1 < rollouts <= ROLLOUT_WITH_LESSON


SIZES = {"n_embd": 100, "n_head": 6, "n_layer": 4, "vocab_size": 1000}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_without_a_name_is_an_error_that_says_the_names(name: str) -> None:
    config = {key: value for key, value in SIZES.items() if key != name}
    with pytest.raises(HostError, match=f"expected one of .*{name}"):
        HostShape.from_config(config, linear_parameters=11, parameters=22)
