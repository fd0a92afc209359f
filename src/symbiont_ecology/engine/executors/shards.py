"""Parts of a call to the host, each of which one worker does alone.

What is in a shard depends on the call only, never on who does it. So the same numbers come out
however many workers there are. A shard that was lost with its worker is done again with the same
result: a row's text depends on its own generator alone, and every try begins with a copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Request,
)
from symbiont_ecology.weights import AdapterWeights, OptimizerState

V = TypeVar("V")
R = TypeVar("R", covariant=True)

ROWS_OF_HOST = 64
"""Rows of the bare host that make a shard. A sketch takes 32 at once."""

LearnedSlots: TypeAlias = tuple[
    dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics
]
"""What ``Host.learn`` returns."""


@dataclass(frozen=True)
class Shard:
    """Numbers of rows of a call, and the slots that they belong to, ascending; without any, they
    are the bare host's."""

    rows: tuple[int, ...]
    slots: tuple[int, ...] = ()

    def local(self, slot: int) -> int:
        """The number that a slot has in the shard."""
        return slot if slot == HOST_SLOT else self.slots.index(slot)

    def part(self, values: Mapping[int, V]) -> dict[int, V]:
        """What belongs to the shard's slots, by their numbers in it."""
        return {place: values[slot] for place, slot in enumerate(self.slots) if slot in values}

    def whole(self, values: Mapping[int, V]) -> dict[int, V]:
        """The same by the slots' own numbers again."""
        return {self.slots[place]: value for place, value in values.items()}


def shards_of(slots: Sequence[int], most: int) -> list[Shard]:
    """Rows by the slots that they belong to, sorted, at most so many slots in a shard. The
    largest shards come first, so that workers end at about the same time."""
    rows_of = dict[int, list[int]]()
    for row, slot in enumerate(slots):
        rows_of.setdefault(slot, []).append(row)
    bare = rows_of.pop(HOST_SLOT, [])
    shards = [Shard(tuple(piece)) for piece in _pieces(bare, ROWS_OF_HOST)]
    for piece in _pieces(sorted(rows_of), most):
        shards.append(Shard(tuple(row for slot in piece for row in rows_of[slot]), tuple(piece)))
    return sorted(shards, key=lambda shard: -len(shard.rows))


def _pieces(numbers: Sequence[int], most: int) -> list[Sequence[int]]:
    return [numbers[start : start + most] for start in range(0, len(numbers), most)]


class ShardTask(Protocol[R]):
    """What is to be done with a shard, in whatever process: a value. Its slots are numbered from
    0, and whoever does it brings their adapters."""

    def work(self, host: Host, adapters: Sequence[AdapterWeights]) -> R:
        """Does it."""


@dataclass(frozen=True)
class RolloutTask:
    """``Host.rollout`` of some rows."""

    rows: Sequence[Request]
    draws: Sequence[np.random.Generator | None] | None
    decoding: Decoding

    def work(self, host: Host, adapters: Sequence[AdapterWeights]) -> Completions:
        """The answers."""
        _place(host, adapters)
        return host.rollout(self.rows, self.draws, self.decoding)


@dataclass(frozen=True)
class ScoreTask:
    """``Host.score`` of some rows."""

    prompts: Sequence[str]
    completions: Sequence[Sequence[int]]
    slots: Sequence[int]

    def work(self, host: Host, adapters: Sequence[AdapterWeights]) -> list[np.ndarray]:
        """Log-probabilities of each row, ``(tokens,)``."""
        _place(host, adapters)
        return list(map(np.asarray, host.score(self.prompts, self.completions, self.slots)))


@dataclass(frozen=True)
class VectorTask:
    """``Host.embed`` of some rows, or ``Host.sketch``."""

    prompts: Sequence[str]
    completions: Sequence[Sequence[int]]
    is_embedding: bool

    def work(self, host: Host, adapters: Sequence[AdapterWeights]) -> np.ndarray:
        """One vector for each row, ``(rows, dimensions)``."""
        verb = host.embed if self.is_embedding else host.sketch
        return verb(self.prompts, self.completions)


@dataclass(frozen=True)
class LearnTask:
    """``Host.learn`` of some slots, all of which have lessons."""

    batch: LearningBatch
    states: Mapping[int, OptimizerState]

    def work(self, host: Host, adapters: Sequence[AdapterWeights]) -> LearnedSlots:
        """What came of one step."""
        return host.learn(self.batch, dict(enumerate(adapters)), self.states)


def _place(host: Host, adapters: Sequence[AdapterWeights]) -> None:
    for slot, adapter in enumerate(adapters):
        host.place(slot, adapter)


def lessons_of(batch: LearningBatch, shard: Shard) -> LearningBatch:
    """A shard's part of a batch."""
    lessons = (batch.lessons[row] for row in shard.rows)
    return LearningBatch(
        tuple(replace(lesson, slot=shard.local(lesson.slot)) for lesson in lessons),
        shard.part(batch.learning_rates),
        batch.clip,
        shard.part(batch.dropout),
        shard.part(batch.dropout_seeds),
    )


def in_order(shards: Sequence[Shard], parts: Sequence[Sequence[V]]) -> list[V]:
    """What the rows of all shards have, in the order of the call."""
    values = {
        row: value
        for shard, part in zip(shards, parts, strict=True)
        for row, value in zip(shard.rows, part, strict=True)
    }
    return [values[row] for row in range(len(values))]


def gathered(shards: Sequence[Shard], parts: Sequence[Completions]) -> Completions:
    """The completions of all shards, in the order of the call."""
    width = max((part.ids.shape[1] for part in parts), default=0)

    def rows(columns: Sequence[np.ndarray]) -> np.ndarray:
        """An array of all rows, padded to the longest answer if a row is an array."""
        padded = [
            np.pad(column, ((0, 0), (0, width - column.shape[1]))) if column.ndim == 2 else column
            for column in columns
        ]
        order = np.concatenate([np.array(shard.rows, dtype=np.int64) for shard in shards])
        joined = np.concatenate(padded)
        array = np.empty_like(joined)
        array[order] = joined
        return array

    def counted(name: str) -> np.ndarray | None:
        """A count that a host may leave out."""
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else rows(values)

    return Completions(
        tuple(in_order(shards, [part.texts for part in parts])),
        rows([part.ids for part in parts]),
        rows([part.log_probabilities for part in parts]),
        rows([part.lengths for part in parts]),
        rows([part.prompt_lengths for part in parts]),
        read=counted("read"),
        fed=counted("fed"),
        stopped=counted("stopped"),
    )
