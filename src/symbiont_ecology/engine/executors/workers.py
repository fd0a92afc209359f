"""A worker: a process with a copy of the host, which keeps nothing from one shard to the next."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from symbiont_ecology.economics import HostShape
from symbiont_ecology.engine.executors import HostSource
from symbiont_ecology.engine.executors.shards import ShardTask
from symbiont_ecology.weights import AdapterLayout, AdapterWeights

PackedAdapter: TypeAlias = tuple[int, float, np.ndarray]
"""Rank, scaling and vector of an adapter; whoever gets it knows the layout."""


def packed(weights: AdapterWeights) -> PackedAdapter:
    """An adapter on its way to another process."""
    return weights.rank, weights.scaling, weights.vector


@dataclass(frozen=True, repr=False)
class HostFacts:
    """What a host says of itself, and where it is."""

    fingerprint: str
    layout: AdapterLayout
    shape: HostShape
    norms: Mapping[str, float]
    memory_mb: float
    machine: str
    pid: int

    def __repr__(self) -> str:
        return f"<host {self.fingerprint} in process {self.pid} on {self.machine}>"


@dataclass(frozen=True)
class ShardResult:
    """What came of a task. ``memory_mb`` is what batches of that worker may take by then."""

    value: object
    memory_mb: float


class ShardWorker:
    """Does shards with a copy of the host, which it has from ``begin`` on."""

    def __init__(self, source: HostSource, slots: int) -> None:
        self._source, self._slots = source, slots

    def begin(self) -> HostFacts:
        """Loads the host.

        Raises:
            HostError: it cannot be loaded here.
        """
        self._host = host = self._source.load(self._slots)
        return HostFacts(
            host.fingerprint(),
            host.layout,
            host.shape,
            dict(host.norms),
            host.memory_mb,
            socket.gethostname(),
            os.getpid(),
        )

    def do(self, task: ShardTask[object], *adapters: PackedAdapter) -> ShardResult:
        """Does a task with these adapters, slot by slot."""
        layout = self._host.layout
        weights = [AdapterWeights(layout, *adapter) for adapter in adapters]
        return ShardResult(task.work(self._host, weights), self._host.memory_mb)


class Crew(Protocol):
    """Workers with copies of one host."""

    @property
    def facts(self) -> HostFacts:
        """What one of them says; they are alike."""

    @property
    def members(self) -> Sequence[HostFacts]:
        """What those who are at work say."""

    def share(self, adapter: PackedAdapter) -> object:
        """An adapter in the form in which tasks take it, so that it is sent to no machine twice."""

    def do(self, tasks: Sequence[tuple[ShardTask[object], Sequence[object]]]) -> list[ShardResult]:
        """Does tasks, each with its adapters as ``share`` gave them; results in their order.

        Raises:
            RunError: nobody is left who could.
        """
