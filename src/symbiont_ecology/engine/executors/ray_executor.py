"""The host in many processes, on one machine or on a cluster, by Ray (Moritz et al. 2018,
arXiv:1712.05889)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from symbiont_ecology.engine.executors import HostSource, executors
from symbiont_ecology.engine.executors.ray_cluster import Machine, check_ray, connect
from symbiont_ecology.engine.executors.ray_crew import Demands, RayCrew
from symbiont_ecology.engine.executors.sharded import ShardedHost
from symbiont_ecology.errors import RunError

AtLeastOne = Annotated[int, Field(ge=1)]


@executors.register("ray")
@dataclass(frozen=True)
class RayExecutor:
    """Workers with a copy of the host each, which share the slots of every call. Results do not
    depend on how many they are."""

    workers: AtLeastOne | Literal["auto"] = "auto"  # auto: as many as memory and cores hold
    address: str | None = None  # auto, HOST:PORT or ray://HOST:PORT; None is this machine
    slots_per_shard: AtLeastOne = 32  # computed together; another number may move the last bits
    seconds: Annotated[float, Field(gt=0)] = 120.0  # to reach the cluster, and to load the host

    def check(self) -> None:
        """Whether Ray is installed.

        Raises:
            MissingExtraError: it is not.
        """
        check_ray("executor: ray")

    def host(self, source: HostSource) -> ShardedHost:
        """A host whose work the workers do.

        Raises:
            RunError: the cluster is out of reach, no machine holds a worker, or none was ready.
            HostError: the host cannot be loaded at a worker.
        """
        self.check()
        workers = 1 if self.workers == "auto" else self.workers
        machines = connect(self.address, self.seconds, workers * source.threads)
        memory, gpus = source.memory(self.slots_per_shard), int(source.needs_gpu)
        most = _fitting(machines, memory, source.threads, gpus)
        count = most if self.workers == "auto" else self.workers
        # On this machine, who asks for more workers than there are cores has them.
        cores = source.threads if self.address else 0
        demands = Demands(memory, cores, gpus, self.seconds)
        crew = RayCrew(source, self.slots_per_shard, count, demands)
        reader = source.reader(crew.facts.shape.vocab)
        return ShardedHost(crew, reader, self.slots_per_shard)


def _fitting(machines: Sequence[Machine], memory: int, cores: int, gpus: int) -> int:
    """How many workers of that size the machines hold.

    Raises:
        RunError: not even one.
    """
    count = sum(machine.holds(memory, cores, gpus) for machine in machines)
    if not count:
        best = max((machine.memory for machine in machines), default=0.0)
        raise RunError(
            f"executor.workers: one worker takes {memory / 1e6:.0f} MB, {cores} CPU cores and "
            f"{gpus} GPUs, and no machine has them (the most memory is {best / 1e6:.0f} MB): lower "
            "host.memory_mb or executor.slots_per_shard"
        )
    return count
