"""Amounts of work, which add up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """An amount of work: ``flops`` are useful FLOPs, ``rows`` are prompts, many of which share one
    call.

    ``executed`` are the FLOPs that were really computed: rows that wait for others included,
    prompts that rows share counted once; 0 where nobody looked.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    rows: int = 0
    calls: int = 0
    flops: int = 0
    executed: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.rows + other.rows,
            self.calls + other.calls,
            flops=self.flops + other.flops,
            executed=self.executed + other.executed,
        )

    @property
    def tokens(self) -> int:
        """Tokens that were read and written."""
        return self.tokens_in + self.tokens_out
