"""The cache of rows that join and leave holds what they need, and is seldom copied."""

from __future__ import annotations

import numpy as np
import torch

from symbiont_ecology.extensions.native.back_end import GROWTH_ROWS, MAX_SPARE, RaggedCache


def cache(rows: int, length: int, room: int) -> RaggedCache:
    """Rows of so many tokens, each with a number of its own in all of them."""
    states = torch.full((1, 2, rows, 1, room, 1), torch.nan)
    states[..., :length, :] = torch.rand(rows)[:, None, None, None]
    return RaggedCache([], states, np.full(rows, length))


def places(one: RaggedCache) -> int:
    """Tokens that it has memory for."""
    return one.states.shape[2] * one.states.shape[4]


def test_a_long_row_costs_nothing_for_short_ones_that_left() -> None:
    held = cache(67, 300, 320)
    held.join(cache(1, 300, 320), 320)
    assert held.states.shape[2] == 72
    held.keep(torch.tensor([3]))
    kept = held.states[:, :, 3, :, :300].clone()
    new = cache(1, 8000, 8192)
    held.join(new, 8192)
    assert places(held) == GROWTH_ROWS * 8192
    assert torch.equal(held.states[:, :, 0, :, :300], kept)
    assert torch.equal(held.states[:, :, 1, :, :8000], new.states[:, :, 0, :, :8000])
    held.keep(torch.tensor([0]))
    held.join(cache(66, 300, 320), 320)
    assert places(held) <= MAX_SPARE * 72 * 320
    assert torch.equal(held.states[:, :, 0, :, :300], kept)


def test_rows_that_come_and_go_as_usual_are_seldom_copied() -> None:
    generator = np.random.default_rng(0)
    held, rows, copies = cache(60, 4, 40), 60, 0
    for _ in range(1000):
        joining, room = int(generator.integers(1, 9)), int(30 + generator.gamma(4, 5))
        before = held.states
        held.join(cache(joining, 4, room), room)
        copies += held.states is not before
        rows = min(rows + joining, int(generator.normal(50, 6)))
        held.keep(torch.arange(rows))
    assert copies < 20
