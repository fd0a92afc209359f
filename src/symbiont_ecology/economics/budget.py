"""What a run has computed so far, apart for training, selection and evaluation. Additions, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["train", "select", "evaluate"]


@dataclass(frozen=True)
class Cost:
    """An amount of work: ``flops`` are useful FLOPs, ``rows`` are prompts, many of which share one call.

    ``executed`` are the FLOPs that were really computed: rows that wait for others included, prompts that
    rows share counted once; 0 where nobody looked.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    rows: int = 0
    calls: int = 0
    flops: int = 0
    updates: int = 0
    executed: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.rows + other.rows,
            self.calls + other.calls,
            self.flops + other.flops,
            self.updates + other.updates,
            self.executed + other.executed,
        )

    @property
    def tokens(self) -> int:
        """Tokens that were read and written."""
        return self.tokens_in + self.tokens_out


@dataclass
class ComputeBudget:
    """The account of all work. What evolution, learning and gates use is ``train``; choosing among finished
    organelles is ``select``; measuring is ``evaluate``."""

    train: Cost = Cost()
    select: Cost = Cost()
    evaluate: Cost = Cost()

    @property
    def total(self) -> Cost:
        """All phases together."""
        return self.train + self.select + self.evaluate

    def charge(self, phase: Phase, cost: Cost) -> None:
        """Adds ``cost`` to one phase."""
        match phase:
            case "train":
                self.train += cost
            case "select":
                self.select += cost
            case "evaluate":
                self.evaluate += cost
