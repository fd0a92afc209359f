"""A host that has its work done by others, shard by shard."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from symbiont_ecology.economics import HostShape
from symbiont_ecology.engine.executors import PromptReader
from symbiont_ecology.engine.executors.shards import (
    LearnedSlots,
    LearnTask,
    RolloutTask,
    ScoreTask,
    Shard,
    ShardTask,
    V,
    VectorTask,
    gathered,
    in_order,
    lessons_of,
    shards_of,
)
from symbiont_ecology.engine.executors.workers import Crew, HostFacts, packed
from symbiont_ecology.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Request,
)
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, OptimizerState

MANY_SLOTS = 1 << 20
"""A slot costs nothing here: a worker holds the adapters of one shard at a time."""


class ShardedHost:
    """Fulfils ``engine.runtime.Host`` with a crew; the tokenizer alone is here.

    ``per_shard`` slots make a shard. It decides the last bits of results, as the make-up of a batch
    does; the number of workers does not.
    """

    slots = MANY_SLOTS

    def __init__(self, crew: Crew, reader: PromptReader, per_shard: int) -> None:
        self._crew, self._reader, self._per_shard = crew, reader, per_shard
        self._memory_mb = crew.facts.memory_mb
        self._placed = dict[int, AdapterWeights]()
        self._shared = dict[int, object]()

    @property
    def workers(self) -> Sequence[HostFacts]:
        """Those who are at work."""
        return self._crew.members

    @property
    def layout(self) -> AdapterLayout:
        """Which modules carry adapters."""
        return self._crew.facts.layout

    @property
    def shape(self) -> HostShape:
        """The host's sizes."""
        return self._crew.facts.shape

    @property
    def norms(self) -> Mapping[str, float]:
        """‖W‖ (Frobenius) of every adapted module's base weights, by name."""
        return self._crew.facts.norms

    @property
    def memory_mb(self) -> float:
        """Megabytes that a batch may take, at the worker that has the least."""
        return self._memory_mb

    def fingerprint(self) -> str:
        """Hash of the base weights."""
        return self._crew.facts.fingerprint

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each prompt as the host reads it."""
        return self._reader.encode(prompts)

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text as the host would write it, end of answer included."""
        return self._reader.encode_answers(answers)

    def place(self, slot: int, weights: AdapterWeights) -> None:
        """Keeps an adapter for a slot; it is sent when the slot has work."""
        self._placed[slot] = weights

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        """Answers every row (``Host.rollout``)."""
        slots = [row.slot for row in rows]

        def task(shard: Shard) -> RolloutTask:
            """The rows of a shard with copies of their generators, as sending makes them."""
            requests = [rows[row] for row in shard.rows]
            return RolloutTask(
                [Request(r.prompt, shard.local(r.slot), r.max_new_tokens) for r in requests],
                None if draws is None else [draws[row] for row in shard.rows],
                decoding,
            )

        return gathered(*self._done(slots, task, self._placed))

    def score(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slots: Sequence[int]
    ) -> list[np.ndarray]:
        """Log-probability (nats) of every token of each completion, ``(tokens,)``."""

        def task(shard: Shard) -> ScoreTask:
            """The rows of a shard."""
            return ScoreTask(
                [prompts[row] for row in shard.rows],
                [completions[row] for row in shard.rows],
                [shard.local(slots[row]) for row in shard.rows],
            )

        return in_order(*self._done(slots, task, self._placed))

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """What each answer would teach the bare host: unit vectors ``(rows, dimensions)``."""
        return self._vectors(prompts, completions, is_embedding=False)

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        """What the bare host makes of each answer that it has read: ``(rows, dimensions)``."""
        return self._vectors(prompts, completions, is_embedding=True)

    def _vectors(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], *, is_embedding: bool
    ) -> np.ndarray:
        def task(shard: Shard) -> VectorTask:
            """The rows of a shard."""
            rows = shard.rows
            read, said = [prompts[row] for row in rows], [completions[row] for row in rows]
            return VectorTask(read, said, is_embedding)

        shards, parts = self._done([HOST_SLOT] * len(prompts), task, {})
        return np.array(in_order(shards, list(map(list, parts))))

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> LearnedSlots:
        """One step for every slot with lessons (``Host.learn``)."""
        states = {slot: optimizer_state.get(slot, OptimizerState()) for slot in weights}
        new_weights, new_states = dict(weights), dict(states)
        losses, norms = dict[int, float](), dict[int, float]()
        tokens, sick = dict[int, int](), list[int]()

        def task(shard: Shard) -> LearnTask:
            """The lessons of a shard."""
            return LearnTask(lessons_of(batch, shard), shard.part(states))

        shards, parts = self._done([lesson.slot for lesson in batch.lessons], task, weights)
        for shard, (part_weights, part_states, part_statistics) in zip(shards, parts, strict=True):
            new_weights |= {
                slot: _at_home(new, weights[slot])
                for slot, new in shard.whole(part_weights).items()
            }
            new_states |= {slot: _kept(state) for slot, state in shard.whole(part_states).items()}
            losses |= shard.whole(part_statistics.loss)
            norms |= shard.whole(part_statistics.gradient_norm)
            tokens |= shard.whole(part_statistics.tokens)
            sick += [shard.slots[place] for place in part_statistics.sick]
        statistics = LearningStatistics(losses, norms, tokens, tuple(sorted(sick)))
        return new_weights, new_states, statistics

    def _done(
        self,
        slots: Sequence[int],
        task: Callable[[Shard], ShardTask[V]],
        weights: Mapping[int, AdapterWeights],
    ) -> tuple[list[Shard], list[V]]:
        """The shards of rows that belong to these slots, and what came of each one's task."""
        shards = shards_of(slots, self._per_shard)
        tasks = [
            (task(shard), [self._handle(weights[slot]) for slot in shard.slots]) for shard in shards
        ]
        results = self._crew.do(tasks)
        self._memory_mb = min([self._memory_mb, *(result.memory_mb for result in results)])
        return shards, [cast(V, result.value) for result in results]

    def _handle(self, weights: AdapterWeights) -> object:
        """How tasks name an adapter: shared when it is first needed, and for as long as somebody
        keeps it."""
        key = id(weights)
        if key not in self._shared:
            self._shared[key] = self._crew.share(packed(weights))
            weakref.finalize(weights, self._shared.pop, key, None).atexit = False
        return self._shared[key]


def _at_home(weights: AdapterWeights, before: AdapterWeights) -> AdapterWeights:
    """What came from a worker, in memory of this process."""
    return replace(before, vector=weights.vector.copy())


def _kept(state: OptimizerState) -> OptimizerState:
    """The same, with moments in memory of this process."""
    first, second = (
        None if moment is None else moment.copy() for moment in (state.first, state.second)
    )
    return OptimizerState(state.step, first, second, state.notes)
