"""Ray (Moritz et al. 2018, arXiv:1712.05889) places workers where cores and GPUs are, restarts lost
ones, and does again what they had: an instance on this machine that ends with this process, or a
cluster by address.

Ray carries pickled objects between our own processes, and whoever reaches a cluster can run code on
it. So it must be one that only its owner can reach.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from symbiont_ecology.base.errors import ConfigError, MissingExtraError, RunError, lines_of
from symbiont_ecology.run.executors import KernelSource, executors

if TYPE_CHECKING:
    from symbiont_ecology.extensions.ray.workers import ShardedHost

LOCAL, RUNNING, CLIENT = "local", "auto", "ray://"
"""Addresses: a new instance here, the cluster that this machine belongs to, a server of clients."""
MAX_RETRIES = 2
"""Workers that a shard may cost before the last one."""
AtLeastOne = Annotated[int, Field(ge=1)]


@executors.register("ray")
@dataclass(frozen=True)
class RayExecutor:
    """Workers with a copy of the host each, which share the slots of every call. Results do not
    depend on how many they are."""

    workers: AtLeastOne | Literal["auto"] = "auto"  # auto: as many as cores and GPUs hold
    address: str | None = None  # auto, HOST:PORT or ray://HOST:PORT; None is this machine
    slots_per_shard: AtLeastOne = 32  # computed together; another number may move the last bits
    seconds: Annotated[float, Field(gt=0)] = 120.0  # to reach the cluster, and to load the host

    def check(self) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError("executor: ray", "ray", "ray")

    def host(self, source: KernelSource) -> ShardedHost:
        """Return a host whose work workers do.

        Raises:
            RunError: the cluster is out of reach, no machine holds a worker, or one was not ready.
            HostError: the host cannot be loaded at a worker.
        """
        from symbiont_ecology.extensions.ray.workers import ShardedHost, Worker, result_of

        self.check()
        import ray

        count = 1 if self.workers == "auto" else self.workers
        cores, gpus = source.config.threads, int(source.config.device.startswith("cuda"))
        machines = connect(self.address, self.seconds, count * cores)
        needs = {"CPU": cores, "GPU": gpus} if gpus else {"CPU": cores}
        rooms = [min(here.get(kind, 0.0) // needs[kind] for kind in needs) for here in machines]
        count = int(sum(rooms)) if self.workers == "auto" else self.workers
        kind = ray.remote(Worker).options(
            # On this machine, who asks for more workers than there are cores has them.
            num_cpus=cores if self.address else 0,
            num_gpus=gpus,
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
        )
        workers = [kind.remote(source, self.slots_per_shard) for _ in range(count)]
        loading = [worker.facts.remote() for worker in workers]
        _, late = ray.wait(loading, num_returns=count, timeout=self.seconds) if count else ([], [0])
        if late:
            raise RunError(
                f"expected {max(count, 1)} workers with {cores} CPU cores and {gpus} GPUs each "
                f"within {self.seconds:g} s, {len(late)} were not ready: lower executor.workers or "
                "host.threads, or raise executor.seconds where loading takes longer"
            )
        facts, *_ = map(result_of, loading)
        return ShardedHost(workers, facts, source.reader(facts.shape.vocab), self.slots_per_shard)


def connect(address: str | None, seconds: float, cores: int = 1) -> Sequence[Mapping[str, float]]:
    """Reach a cluster, or start an instance here with at least so many cores; one that this process
    has reached already stays. Return the cores (``CPU``) and ``GPU``s of its machines.

    Raises:
        ConfigError: the address has another form.
        RunError: the cluster does not answer within so many seconds.
    """
    import ray

    if not ray.is_initialized():
        place, options = address or LOCAL, dict[str, object]()
        if place == LOCAL:
            with suppress(ImportError):  # no report of use goes to the makers of Ray
                from ray._common.usage.usage_lib import set_usage_stats_enabled_via_env_var

                set_usage_stats_enabled_via_env_var(False)
            # Ray's own choice lets everything else on the machine go first.
            options = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}}
            options["num_cpus"] = max(cores, os.cpu_count() or 1)
        elif place != RUNNING:
            _knock(place, seconds)
        try:
            ray.init(place, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            raise RunError(
                f"expected a Ray cluster at {place!r}, reached none ({lines_of(error)[0]:.200}): "
                "start one with ray start --head; if it asks for a token, set RAY_AUTH_MODE=token"
            ) from error
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _knock(address: str, seconds: float) -> None:
    """Refuse an address where nobody answers: Ray waits for minutes there, and may end the
    process."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ConfigError(
            f"executor.address: expected {RUNNING}, HOST:PORT or {CLIENT}HOST:PORT, got {address!r}"
        )
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
    except OSError as error:
        raise RunError(
            f"expected a Ray cluster at {address!r}, nobody answered within {seconds:g} s "
            f"({error.strerror or error}): check executor.address, and start it with "
            "ray start --head"
        ) from error
