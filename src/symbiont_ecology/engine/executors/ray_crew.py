"""Workers that Ray runs: whoever is free gets the next shard, and what a lost worker had is done
again by another one."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symbiont_ecology.engine.executors import HostSource
from symbiont_ecology.engine.executors.shards import ShardTask
from symbiont_ecology.engine.executors.workers import (
    HostFacts,
    PackedAdapter,
    ShardResult,
    ShardWorker,
)
from symbiont_ecology.errors import EcologyError, HostError, RunError, lines_of

MOST_LOSSES = 3
"""Workers that a shard may cost before it is held to be what kills them."""
SENT_EACH_TIME = 100_000
"""Bytes of an adapter up to which it is sent with every shard: Ray copies so much in any case."""


@dataclass(frozen=True)
class Demands:
    """What a worker takes: bytes of memory, CPU cores and GPUs; and the seconds in which it must be
    ready."""

    memory: int
    cores: int
    gpus: int
    seconds: float


class RayCrew:
    """So many workers with copies of one host; Ray places them where memory, cores and GPUs are.

    Those who are not ready in time join later. A lost one is replaced.

    Raises:
        RunError: none was ready in time.
        HostError: the host cannot be loaded at a worker, or is another one there.
    """

    def __init__(self, source: HostSource, slots: int, count: int, demands: Demands) -> None:
        import ray

        self._ray, self._source, self._slots, self._demands = ray, source, slots, demands
        self._facts: HostFacts | None = None
        self._loss = ""  # how the last worker was lost
        self._hands = dict[Any, HostFacts]()  # actors that are at work
        self._joining = dict[Any, Any]()  # what they will say, and the actors that load the host
        for _ in range(count):
            self._hire()
        deadline = time.monotonic() + demands.seconds
        while self._joining and (left := deadline - time.monotonic()) > 0:
            self._welcome(self._first(list(self._joining), left))
        if not self._hands:
            raise RunError(
                f"expected a worker within {demands.seconds:g} s, none was ready{self._loss}: is "
                f"there {demands.memory / 1e6:.0f} MB of memory and {demands.cores} free CPU cores "
                "on a machine of the cluster? Raise executor.seconds where loading takes longer"
            )

    @property
    def facts(self) -> HostFacts:
        """What the first worker said."""
        assert self._facts is not None
        return self._facts

    @property
    def members(self) -> Sequence[HostFacts]:
        """What those who are at work say."""
        return list(self._hands.values())

    def share(self, adapter: PackedAdapter) -> object:
        """A large one is put into Ray's object store, which sends it to each machine once."""
        return adapter if adapter[-1].nbytes <= SENT_EACH_TIME else self._ray.put(adapter)

    def do(self, tasks: Sequence[tuple[ShardTask[object], Sequence[object]]]) -> list[ShardResult]:
        """Does tasks, whoever is free the next one (``Crew.do``)."""
        results, losses = dict[int, ShardResult](), Counter[int]()
        todo, idle = deque(range(len(tasks))), deque(self._hands)
        running = dict[Any, tuple[Any, int]]()
        while len(results) < len(tasks):
            while todo and idle:
                hand, number = idle.popleft(), todo.popleft()
                task, adapters = tasks[number]
                running[hand.do.remote(task, *adapters)] = hand, number
            for ready in self._next([*running, *self._joining]):
                if ready in self._joining:
                    idle.extend(self._welcome([ready]))
                    continue
                hand, number = running.pop(ready)
                result = self._result(ready)
                if result is not None:
                    results[number] = result
                    idle.append(hand)
                    continue
                losses[number] += 1
                if losses[number] >= MOST_LOSSES:
                    raise RunError(
                        f"{MOST_LOSSES} workers were lost over the same shard (out of memory?): "
                        "lower host.memory_mb or executor.slots_per_shard"
                    )
                todo.appendleft(number)
                del self._hands[hand]
                self._hire()
        return [results[number] for number in range(len(tasks))]

    def _next(self, awaited: Sequence[Any]) -> Sequence[Any]:
        """What is ready first.

        Raises:
            RunError: nobody is at work, and no other worker was ready in time.
        """
        while not (ready := self._first(awaited, self._demands.seconds)):
            if not self._hands:
                raise RunError(
                    f"all workers were lost{self._loss}, and no other was ready within "
                    f"{self._demands.seconds:g} s: look at ray status, then resume the run"
                )
        return ready

    def _first(self, awaited: Sequence[Any], seconds: float) -> Sequence[Any]:
        ready: Sequence[Any]
        ready, _ = self._ray.wait(list(awaited), num_returns=1, timeout=seconds)
        return ready

    def _hire(self) -> None:
        """Has another worker load the host."""
        demands = self._demands
        worker = self._ray.remote(ShardWorker).options(
            num_cpus=demands.cores, num_gpus=demands.gpus, memory=demands.memory
        )
        hand = worker.remote(self._source, self._slots)
        self._joining[hand.begin.remote()] = hand

    def _welcome(self, ready: Sequence[Any]) -> list[Any]:
        """Those among the awaited who have loaded the host; who was lost meanwhile is replaced."""
        welcome = []
        for ref in ready:
            hand, facts = self._joining.pop(ref), self._result(ref)
            if facts is None:
                self._hire()
                continue
            self._facts = self._facts or facts
            if facts.fingerprint != self.facts.fingerprint:
                raise HostError(
                    f"expected host {self.facts.fingerprint} on every machine, found "
                    f"{facts.fingerprint} on {facts.machine}: copy the same model there"
                )
            self._hands[hand] = facts
            welcome.append(hand)
        return welcome

    def _result(self, ref: Any) -> Any:
        """What came of a call; None where the worker was lost.

        Raises:
            EcologyError: what the worker itself had to say.
            RunError: something else went wrong in it.
        """
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, EcologyError):
                raise cause from None
            fault = f"{type(cause).__name__}: {lines_of(cause)[0]:.200}"
            raise RunError(f"a worker failed: {fault}") from error
        except errors.RayError as error:
            if getattr(error, "actor_init_failed", False):  # which the next one would, too
                why = lines_of(error)[-1]
                raise RunError(f"a worker could not begin: {why:.200}") from error
            self._loss = f" ({lines_of(error)[0]:.200})"
            return None
