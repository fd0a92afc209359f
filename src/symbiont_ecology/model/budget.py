"""Sizes of batches that fit into the memory that their user gives, and smaller ones when memory ran
out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.base.flops import HostShape

Output = TypeVar("Output")
Piece = TypeVar("Piece")

MAX_FORWARD = 2048
"""Tokens per forward on a CPU: twice as many were no faster, and half as many 3 % slower."""
MAX_CACHED = 65536
"""Tokens of cached rows per batch on a CPU: beyond it a row costs no less."""
MAX_LESSON_MB = 1000
"""Megabytes of one forward and backward pass on a CPU: 500 tokens of SmolLM2 fill the machine."""


@dataclass(frozen=True)
class MemoryBudget:
    """``megabytes`` for what one batch needs beside the host and the slots.

    ``itemsize`` is the host's bytes per number. Sizes are estimates from the host's shape.
    ``between`` is called between pieces of learning and scoring: a service answers there.
    """

    megabytes: float
    shape: HostShape
    itemsize: int
    is_cpu: bool = True
    between: Callable[[], None] = lambda: None

    def paced(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces; in front of each, ``between`` has the machine."""
        for piece in pieces:
            self.between()
            yield piece

    def rows(self, longest: int) -> int:
        """Return how many rows of at most ``longest`` tokens may be written at a time.

        Each one is cached and read, and a sampled one sorts its vocabulary in double precision.
        """
        shape = self.shape
        cached = 2 * shape.layers * shape.kv_heads * shape.head_dim * self.itemsize
        count = self._fitting(longest * (cached + self._activations) + 32 * shape.vocab)
        return min(count, max(1, MAX_CACHED // longest)) if self.is_cpu else count

    @property
    def longest_lesson(self) -> int:
        """Tokens of the longest row that can be learned from: a row is never cut."""
        return min(self._fitting(self._lesson_bytes), self.shape.max_positions)

    @property
    def _lesson_bytes(self) -> int:
        """Bytes of a forward and backward pass per learned token: activations of all layers,
        logits, what they become, and their gradients."""
        return self.shape.layers * self._activations + 12 * self.shape.vocab

    @property
    def forward_tokens(self) -> int:
        """Tokens per forward pass without gradients."""
        return self._forward(self._activations)

    @property
    def learning_tokens(self) -> int:
        """Tokens per forward and backward pass: every layer's activations wait for their
        gradients."""
        budget = self
        if self.is_cpu:
            budget = replace(self, megabytes=min(self.megabytes, MAX_LESSON_MB))
        return budget._forward(self._lesson_bytes)

    @property
    def _activations(self) -> int:
        """Bytes per token inside one layer."""
        shape = self.shape
        attention = 4 * (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        return (4 * shape.hidden + attention + 4 * shape.feed_forward) * self.itemsize

    def _forward(self, bytes_each: int) -> int:
        tokens = self._fitting(bytes_each)
        return min(tokens, MAX_FORWARD) if self.is_cpu else tokens

    def _fitting(self, bytes_each: int) -> int:
        return max(1, int(self.megabytes * 1e6 / bytes_each))


def within(
    budget: MemoryBudget, work: Callable[[MemoryBudget], Output]
) -> tuple[Output, MemoryBudget]:
    """Does the work, in smaller and smaller pieces while memory runs out; also the budget that
    sufficed.

    ``work`` starts anew each time, so it must not have changed anything that it reads.

    Raises:
        HostError: a single row does not fit.
    """
    while (output := if_memory_lasts(partial(work, budget))) is None:
        smaller = replace(budget, megabytes=budget.megabytes / 2)
        if smaller.forward_tokens == smaller.learning_tokens == 1:
            raise HostError(
                "expected memory for a batch of one row, got none with "
                f"{budget.megabytes:.3g} MB: free some, use fewer slots or a smaller host"
            )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        budget = smaller
    return output, budget


def if_memory_lasts(work: Callable[[], Output]) -> Output | None:
    """Return what the work gives; None if memory runs out."""
    try:
        return work()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return True if torch says that there is no memory left; the CPU's allocator has no error of
    its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
