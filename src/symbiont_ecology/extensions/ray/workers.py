"""A host that has its work done by workers, shard by shard.

What is in a shard depends on the call only, never on who does it. So the same numbers come out
however many workers there are. A shard that was lost with its worker is done again with the same
result: a row's text depends on its own generator alone, and every try begins with a copy of it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.base.errors import EcologyError, HostError, RunError, lines_of
from symbiont_ecology.base.fence import said_of
from symbiont_ecology.base.flops import HostShape
from symbiont_ecology.base.types import (
    HOST_SLOT,
    Completions,
    Decoding,
    LearningBatch,
    LearningStatistics,
    Request,
)
from symbiont_ecology.run.executors import KernelSource
from symbiont_ecology.run.runtime import Host

if TYPE_CHECKING:
    from symbiont_ecology.model.codec import TextCodec

V = TypeVar("V")

ROWS_OF_HOST = 64
"""Rows of the bare host that make a shard. A sketch takes 32 at once."""


@dataclass(frozen=True)
class HostFacts:
    """Description of a host by itself."""

    fingerprint: str
    layout: AdapterLayout
    shape: HostShape
    norms: Mapping[str, float]
    memory_mb: float


class Worker:
    """A process with a copy of the host, which keeps nothing from one shard to the next. Ray makes
    it anew where it was lost."""

    def __init__(self, source: KernelSource, slots: int) -> None:
        self._source, self._slots = source, slots

    @cached_property
    def _host(self) -> Host:
        return self._source.load(self._slots)

    def facts(self) -> HostFacts:
        """Load the host, and return what it says."""
        host = self._host
        norms = dict(host.norms)
        return HostFacts(host.fingerprint(), host.layout, host.shape, norms, host.memory_mb)

    def do(
        self, fingerprint: str, verb: str, adapters: Sequence[AdapterWeights], *arguments: object
    ) -> tuple[Any, float]:
        """Return what a verb of the host returns with these adapters in its first slots, and the
        megabytes that its batches may take by then.

        Raises:
            HostError: the host here is another one.
        """
        host = self._host
        if host.fingerprint() != fingerprint:
            raise HostError(
                f"expected host {fingerprint} on every machine, found {host.fingerprint()} on "
                f"{socket.gethostname()}: copy the same model there"
            )
        for slot, adapter in enumerate(adapters):
            host.place(slot, adapter)
        return getattr(host, verb)(*arguments), host.memory_mb


def result_of(reference: Any) -> Any:
    """Return what came of a call.

    Raises:
        EcologyError: the worker said so.
        RunError: something else went wrong in it, or too many workers were lost.
    """
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, EcologyError):
            raise cause from None
        raise RunError(f"a worker failed: {said_of(cause)}") from error
    except ray.exceptions.RayError as error:
        if getattr(error, "actor_init_failed", False):  # such as a machine without this package
            raise RunError(f"a worker could not begin: {lines_of(error)[-1]:.200}") from error
        raise RunError(
            f"workers were lost over the same shard ({lines_of(error)[0]:.200}; out of memory?): "
            "lower host.memory_mb or executor.slots_per_shard"
        ) from error


@dataclass(frozen=True)
class Shard:
    """Numbers of rows of a call, and the slots that they belong to, ascending; without any, they
    are the bare host's."""

    rows: tuple[int, ...]
    slots: tuple[int, ...] = ()

    def of(self, values: Sequence[V]) -> list[V]:
        """Return what its rows have."""
        return [values[row] for row in self.rows]

    def local(self, slot: int) -> int:
        """Return the number that a slot has in the shard."""
        return slot if slot == HOST_SLOT else self.slots.index(slot)

    def part(self, values: Mapping[int, V]) -> dict[int, V]:
        """Return what belongs to the shard's slots, by their numbers in it."""
        return {place: values[slot] for place, slot in enumerate(self.slots) if slot in values}

    def whole(self, values: Mapping[int, V]) -> dict[int, V]:
        """Return the same by the slots' own numbers again."""
        return {self.slots[place]: value for place, value in values.items()}


def shards_of(slots: Sequence[int], max_slots: int) -> list[Shard]:
    """Return rows by the slots that they belong to, sorted, at most so many slots in a shard. The
    largest shards come first, so that workers end at about the same time."""
    rows_of = dict[int, list[int]]()
    for row, slot in enumerate(slots):
        rows_of.setdefault(slot, []).append(row)
    shards = [Shard(tuple(piece)) for piece in _pieces(rows_of.pop(HOST_SLOT, []), ROWS_OF_HOST)]
    for piece in _pieces(sorted(rows_of), max_slots):
        shards.append(Shard(tuple(row for slot in piece for row in rows_of[slot]), tuple(piece)))
    return sorted(shards, key=lambda shard: -len(shard.rows))


def _pieces(numbers: Sequence[int], most: int) -> list[Sequence[int]]:
    return [numbers[start : start + most] for start in range(0, len(numbers), most)]


class ShardedHost:
    """A host (``engine.runtime.Host``) whose workers compute; the tokenizer alone is here.

    ``per_shard`` slots make a shard. It decides the last bits of results, as the make-up of a batch
    does; the number of workers does not.
    """

    slots = 1 << 20
    """A slot costs nothing here: a worker holds the adapters of one shard at a time."""

    def __init__(
        self, workers: Sequence[Any], facts: HostFacts, reader: TextCodec, per_shard: int
    ) -> None:
        self._workers, self._facts, self._per_shard = workers, facts, per_shard
        self.layout, self.shape, self.norms = facts.layout, facts.shape, facts.norms
        self.memory_mb = facts.memory_mb
        self.encode, self.encode_answers = reader.encode, reader.encode_answers
        self._placed = dict[int, AdapterWeights]()

    def fingerprint(self) -> str:
        return self._facts.fingerprint

    def place(self, slot: int, weights: AdapterWeights) -> None:
        self._placed[slot] = weights  # it is sent when the slot has work

    def rollout(
        self,
        rows: Sequence[Request],
        draws: Sequence[np.random.Generator | None] | None,
        decoding: Decoding,
    ) -> Completions:
        def task(shard: Shard) -> tuple[object, ...]:
            requests = [replace(row, slot=shard.local(row.slot)) for row in shard.of(rows)]
            return requests, draws and shard.of(draws), decoding

        return _gathered(*self._done("rollout", [row.slot for row in rows], task))

    def score(
        self, prompts: Sequence[str], completions: Sequence[Sequence[int]], slots: Sequence[int]
    ) -> list[np.ndarray]:
        def task(shard: Shard) -> tuple[object, ...]:
            local = list(map(shard.local, shard.of(slots)))
            return shard.of(prompts), shard.of(completions), local

        return list(map(np.asarray, _in_order(*self._done("score", slots, task))))

    def sketch(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        return self._vectors("sketch", prompts, completions)

    def embed(self, prompts: Sequence[str], completions: Sequence[Sequence[int]]) -> np.ndarray:
        return self._vectors("embed", prompts, completions)

    def learn(
        self,
        batch: LearningBatch,
        weights: Mapping[int, AdapterWeights],
        optimizer_state: Mapping[int, OptimizerState],
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        states = {slot: optimizer_state.get(slot, OptimizerState()) for slot in weights}
        new_weights, new_states = dict(weights), dict(states)
        told = LearningStatistics({}, {}, {}, ())

        def task(shard: Shard) -> tuple[object, ...]:
            lessons = _lessons_of(batch, shard)
            return lessons, shard.part(weights), shard.part(states)

        slots = [lesson.slot for lesson in batch.lessons]
        for shard, (learned, moved, said) in zip(*self._done("learn", slots, task), strict=True):
            # Moments and vectors in memory of this process, and not of Ray's store.
            for slot, new in shard.whole(learned).items():
                new_weights[slot] = replace(weights[slot], vector=new.vector.copy())
            for slot, state in shard.whole(moved).items():
                first, second = (
                    one if one is None else one.copy() for one in (state.first, state.second)
                )
                new_states[slot] = OptimizerState(state.step, first, second, state.notes)
            told = LearningStatistics(
                {**told.loss, **shard.whole(said.loss)},
                {**told.gradient_norm, **shard.whole(said.gradient_norm)},
                {**told.tokens, **shard.whole(said.tokens)},
                tuple(sorted([*told.sick, *(shard.slots[place] for place in said.sick)])),
            )
        return new_weights, new_states, told

    def _vectors(
        self, verb: str, prompts: Sequence[str], completions: Sequence[Sequence[int]]
    ) -> np.ndarray:
        shards, parts = self._done(
            verb,
            [HOST_SLOT] * len(prompts),
            lambda shard: (shard.of(prompts), shard.of(completions)),
        )
        return np.array(_in_order(shards, list(map(list, parts))))

    def _done(
        self, verb: str, slots: Sequence[int], task: Callable[[Shard], tuple[object, ...]]
    ) -> tuple[list[Shard], list[Any]]:
        """Return the shards of rows that belong to these slots, and what came of each; a worker
        that is free gets the next one."""
        shards = shards_of(slots, self._per_shard)
        idle, running = list(self._workers), dict[Any, tuple[Any, int]]()
        results = dict[int, Any]()
        for number, shard in enumerate(shards):
            if not idle:
                idle.append(self._next(running, results))
            adapters = [] if verb == "learn" else [self._placed[slot] for slot in shard.slots]
            worker = idle.pop()
            job = worker.do.remote(self.fingerprint(), verb, adapters, *task(shard))
            running[job] = worker, number
        while running:
            self._next(running, results)
        return shards, [results[number] for number in range(len(shards))]

    def _next(self, running: dict[Any, tuple[Any, int]], results: dict[int, Any]) -> Any:
        """Wait until a worker is free, note its result, and return it."""
        import ray

        (ready,), _ = ray.wait(list(running))
        worker, number = running.pop(ready)
        results[number], memory_mb = result_of(ready)
        self.memory_mb = min(self.memory_mb, memory_mb)
        return worker


def _lessons_of(batch: LearningBatch, shard: Shard) -> LearningBatch:
    """Return a shard's part of a batch."""
    lessons = (replace(one, slot=shard.local(one.slot)) for one in shard.of(batch.lessons))
    return replace(
        batch,
        lessons=tuple(lessons),
        learning_rates=shard.part(batch.learning_rates),
        dropout=shard.part(batch.dropout),
        dropout_seeds=shard.part(batch.dropout_seeds),
    )


def _in_order(shards: Sequence[Shard], parts: Sequence[Sequence[V]]) -> list[V]:
    """Return what the rows of all shards have, in the order of the call."""
    values = {
        row: value
        for shard, part in zip(shards, parts, strict=True)
        for row, value in zip(shard.rows, part, strict=True)
    }
    return [values[row] for row in range(len(values))]


def _gathered(shards: Sequence[Shard], parts: Sequence[Completions]) -> Completions:
    """Return the completions of all shards, in the order of the call; ids and log-probabilities are
    padded to the longest answer."""
    width = max(part.ids.shape[1] for part in parts)
    columns = dict[str, Any]()
    for name in (field.name for field in fields(Completions)):
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            continue
        if name in ("ids", "log_probabilities"):
            values = [np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in values]
        rows = _in_order(shards, [[one[row] for row in range(len(one))] for one in values])
        columns[name] = np.array(rows) if isinstance(values[0], np.ndarray) else tuple(rows)
    return Completions(**columns)
