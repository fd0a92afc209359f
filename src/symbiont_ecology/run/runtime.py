"""The machinery of a run. Parts are frozen; only the state moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.fence import Faults
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.transcripts import TranscriptLog
from symbiont_ecology.base.types import Completions, Decoding, LearningBatch, Request
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.ecology.learning import LearningRule, RewardRule
from symbiont_ecology.ecology.learning.experience import LearnedSlots
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.routing.allocators import Allocator
from symbiont_ecology.ecology.strategies import Strategy, StrategyContext
from symbiont_ecology.tasks.mixture import TaskMixture


class Host(Protocol):
    """A host, as the engine needs it; ``HostKernel`` is one, tests bring a toy."""

    @property
    def slots(self) -> int:
        """Adapters that one batched call can serve."""

    @property
    def layout(self) -> AdapterLayout:
        """Modules that carry adapters."""

    @property
    def shape(self) -> HostShape:
        """The host's sizes, for the price of its work."""

    @property
    def norms(self) -> Mapping[str, float]:
        """‖W‖ (Frobenius) of every adapted module's base weights, by name."""

    @property
    def memory_mb(self) -> float:
        """Megabytes that a batch may take; falls when the device turns out to have less."""

    def fingerprint(self) -> str:
        """Return a hash of the base weights."""

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Return token ids of each prompt as the host reads it."""

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Return token ids of each text as the host would write it, end of answer included."""

    def score(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slots: Sequence[int]
    ) -> Sequence[ArrayLike]:
        """Return the log-probability (nats) of every token of each completion, ``(tokens,)``."""

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Return directions in which each answer would change the bare host: unit vectors
        ``(rows, dimensions)``."""

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the bare host's embedding of each answer, ``(rows, dimensions)``."""

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Copy an adapter into a slot."""

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        """Answer every row, whichever slots they belong to; a row without a generator greedily."""

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> LearnedSlots:
        """Make one step for every slot with lessons."""


@dataclass(frozen=True, repr=False)
class Runtime:
    """The parts of a run: everything that a generation works with beside the state."""

    host: Host
    store: BlobStore
    tasks: TaskMixture
    prices: Prices
    allocator: Allocator
    rank: int
    """LoRA rank of the slots."""
    strategy: Strategy
    learning_rule: LearningRule
    reward: RewardRule
    practice: Decoding
    """Decoding of practice, whose answers must differ for there to be anything to learn: sampled
    from the organelle's own distribution, the policy that learning improves, or from a cooler one
    if the rule says so."""
    transcripts: TranscriptLog
    """Log of replies."""
    milestones: tuple[float, ...]
    """Training FLOPs at which the world changes or the run ends, rising (``run.budget``)."""
    warned: set[str] = field(default_factory=set)
    """Parts whose faults were warned of."""

    def at(self, state: EcologyState, reached: float, until: float) -> GenerationContext:
        """Return the generation that comes next, between two milestones: what counts as right may
        have changed at the first."""
        parts = vars(self) | {"tasks": self.tasks.at(reached)}
        draw = Draw(state.seed, state.generation)
        return GenerationContext(**parts, state=state, draw=draw, until=until)


@dataclass(frozen=True, repr=False, kw_only=True)
class GenerationContext(Runtime):
    """One generation at work: the parts as they are in it, the state that they change, its
    draws."""

    state: EcologyState
    draw: Draw
    until: float = math.inf
    """The next milestone."""
    faults: Faults = field(default_factory=Faults)
    """Failures of parts that anybody may write."""

    @property
    def strategy_context(self) -> StrategyContext:
        """All that the strategy may look at."""
        return StrategyContext(
            self.state, self.tasks, self.prices, self.allocator, self.rank, draw=self.draw
        )
