"""Work that is split into shards: every row is done once, and the outcome is that of one host."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_hosts import ToySource
from symbiont_ecology.config import HostConfig
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.engine.build import KernelSource
from symbiont_ecology.engine.executors import HostSource
from symbiont_ecology.engine.executors.sharded import ShardedHost
from symbiont_ecology.engine.executors.shards import ROWS_OF_HOST, ShardTask, shards_of
from symbiont_ecology.engine.executors.workers import (
    HostFacts,
    PackedAdapter,
    ShardResult,
    ShardWorker,
)
from symbiont_ecology.engine.run import start
from symbiont_ecology.event_log import read_events
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.types import HOST_SLOT, Decoding, LearningBatch, Lesson, Request
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from toy import ToyHost, toy_config


@dataclass
class NearbyCrew:
    """Workers of this process, who take turns; what they get is a copy, as over a wire."""

    source: HostSource
    count: int
    slots: int
    workers: list[ShardWorker] = field(default_factory=list)
    members: list[HostFacts] = field(default_factory=list)
    done: int = 0

    def __post_init__(self) -> None:
        self.workers = [ShardWorker(self.source, self.slots) for _ in range(self.count)]
        self.members = [worker.begin() for worker in self.workers]

    @property
    def facts(self) -> HostFacts:
        """What the first says."""
        return self.members[0]

    def share(self, adapter: PackedAdapter) -> object:
        """As it is."""
        return adapter

    def do(self, tasks: Sequence[tuple[ShardTask[object], Sequence[object]]]) -> list[ShardResult]:
        """One after the other, each by the next worker."""
        results = []
        for task, adapters in copy.deepcopy(list(tasks)):
            worker = self.workers[self.done % self.count]
            results.append(worker.do(task, *adapters))  # type: ignore[arg-type]
            self.done += 1
        return results


def sharded(count: int, per_shard: int, source: HostSource | None = None) -> ShardedHost:
    """A host of so many workers."""
    source = source or ToySource()
    return ShardedHost(NearbyCrew(source, count, per_shard), source.reader(280), per_shard)


@given(slots=st.lists(st.integers(HOST_SLOT, 40), max_size=300), most=st.integers(1, 20))
def test_every_row_is_in_one_shard_with_its_slot(slots: list[int], most: int) -> None:
    shards = shards_of(slots, most)
    assert sorted(row for shard in shards for row in shard.rows) == list(range(len(slots)))
    held = [slot for shard in shards for slot in shard.slots]
    assert sorted(held) == sorted(set(slots) - {HOST_SLOT})
    for shard in shards:
        assert len(shard.slots) <= most
        assert shard.slots == tuple(sorted(shard.slots))
        assert {slots[row] for row in shard.rows} == set(shard.slots or (HOST_SLOT,))
        assert shard.slots or len(shard.rows) <= ROWS_OF_HOST


def test_a_run_in_shards_lives_as_one_on_one_host(tmp_path: Path) -> None:
    config = toy_config(generations=8)
    start(config, tmp_path / "whole", host=ToyHost())
    start(config, tmp_path / "shards", host=sharded(3, 2))
    whole, shards = (
        [
            replace(event, calls=0) if isinstance(event, GenerationEnded) else event
            for event in read_events(tmp_path / name / "events.jsonl")
        ]
        for name in ("whole", "shards")
    )
    assert shards == whole
    assert len(checkpoint.load_state(tmp_path / "shards").population) > 1


def adapters_of(layout: object, count: int) -> list[AdapterWeights]:
    return [
        AdapterWeights.random(layout, 4, 1.0, np.random.default_rng(seed), 0.05)  # type: ignore[arg-type]
        for seed in range(count)
    ]


@pytest.fixture(scope="module")
def kernels() -> dict[int, ShardedHost]:
    """The embedded host with one worker and with three."""
    source = KernelSource(HostConfig(memory_mb=256), is_chat=False)
    return {count: sharded(count, 4, source) for count in (1, 3)}


def test_a_language_model_answers_the_same_by_one_worker_and_by_three(
    kernels: dict[int, ShardedHost],
) -> None:
    rows = [Request(f"math.add: {n}+{n % 3}\n", n % 11 - 1, 6) for n in range(150)]
    found = []
    for host in kernels.values():
        for slot, adapter in enumerate(adapters_of(host.layout, 10)):
            host.place(slot, adapter)
        draws = [np.random.default_rng([7, row]) for row in range(len(rows))]
        answers = host.rollout(rows, draws, Decoding(1.0))
        prompts, ids = [row.prompt for row in rows], [answers[n].token_ids for n in range(150)]
        scores = host.score(prompts, ids, [row.slot for row in rows])
        sketches = host.sketch(prompts[:70], ids[:70])
        found.append((answers, scores, sketches, host.embed(prompts[:70], ids[:70])))
        for n in range(150):
            assert np.allclose(scores[n], answers[n].log_probabilities, atol=1e-3)
    one, three = found
    assert one[0].texts == three[0].texts
    for name in ("ids", "log_probabilities", "lengths", "prompt_lengths", "read", "fed"):
        assert np.array_equal(getattr(one[0], name), getattr(three[0], name)), name
    assert all(map(np.array_equal, one[1], three[1]))
    assert np.array_equal(one[2], three[2])
    assert np.array_equal(one[3], three[3])


def test_a_language_model_learns_the_same_by_one_worker_and_by_three(
    kernels: dict[int, ShardedHost],
) -> None:
    found = []
    for host in kernels.values():
        weights = dict(enumerate(adapters_of(host.layout, 10)))
        states = {slot: OptimizerState(notes={"kept": slot}) for slot in weights}
        (answer,) = host.encode_answers(["=12"])
        lessons = [Lesson(f"math.add: {n}+2\n", answer, n % 9, 1.0) for n in range(40)]
        rates = dict.fromkeys(weights, 0.01)
        dropout, seeds = dict.fromkeys(weights, 0.1), {slot: 5 + slot for slot in weights}
        batch = LearningBatch(tuple(lessons), rates, dropout=dropout, dropout_seeds=seeds)
        found.append(host.learn(batch, weights, states))
        assert found[-1][0][9] is weights[9]  # it has no lesson
        assert not np.array_equal(found[-1][0][0].vector, weights[0].vector)
    (weights, states, told), (others, other_states, other_told) = found
    assert told == other_told
    for slot in weights:
        assert np.array_equal(weights[slot].vector, others[slot].vector)
        assert states[slot].notes == other_states[slot].notes == {"kept": slot}
        assert np.array_equal(states[slot].first, other_states[slot].first)  # type: ignore[arg-type]
