"""Reaching Ray: an instance on this machine that ends with this process, or a cluster by address.

Ray carries pickled objects between our own processes, and whoever reaches a cluster can run code on
it. So it must be one that only its owner can reach.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from symbiont_ecology.errors import ConfigError, MissingExtraError, RunError, lines_of

LOCAL, RUNNING, CLIENT = "local", "auto", "ray://"
"""Addresses: a new instance here, the cluster that this machine belongs to, a server of clients."""


@dataclass(frozen=True)
class Machine:
    """What a machine of a cluster offers: bytes of memory, CPU cores and GPUs."""

    memory: float
    cores: float
    gpus: float

    def holds(self, memory: int, cores: int, gpus: int) -> int:
        """How many workers of that size it holds."""
        parts = [self.memory / memory, self.cores / cores]
        return int(min([*parts, self.gpus / gpus] if gpus else parts))


def check_ray(use: str) -> None:
    """Whether Ray is installed.

    Raises:
        MissingExtraError: it is not.
    """
    if find_spec("ray") is None:
        raise MissingExtraError(use, "ray", "ray")


def connect(address: str | None, seconds: float, cores: int = 1) -> Sequence[Machine]:
    """Reaches a cluster, or starts an instance here with at least so many cores; one that this
    process has reached already stays. Returns its machines.

    Raises:
        ConfigError: the address has another form.
        RunError: the cluster does not answer within so many seconds.
    """
    import ray

    if not ray.is_initialized():
        place, options = address or LOCAL, dict[str, object]()
        if place == LOCAL:
            _keep_silent()
            # Ray's own choice lets everything else on the machine go first.
            options = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}}
            options["num_cpus"] = max(cores, os.cpu_count() or 1)
        else:
            _knock(_own_cluster() if place == RUNNING else place, seconds)
        try:
            ray.init(place, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            why = lines_of(error)[0]
            raise RunError(
                f"expected a Ray cluster at {place!r}, reached none ({why:.200}): start one with "
                "ray start --head; if it asks for a token, set RAY_AUTH_MODE=token here, too"
            ) from error
    return [
        Machine(resources.get("memory", 0.0), resources.get("CPU", 0.0), resources.get("GPU", 0.0))
        for node in ray.nodes()
        if node["Alive"]
        for resources in [node["Resources"]]
    ]


def _own_cluster() -> str:
    """The address of the cluster that this machine belongs to, or did: it may have ended.

    Raises:
        RunError: it belongs to none.
    """
    path = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"  # where ray start writes it
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise RunError(
            f"expected a Ray cluster on this machine, found none in {path}: join one with "
            "ray start --address=HOST:PORT, or give the address of its head"
        ) from error


def _knock(address: str, seconds: float) -> None:
    """Ray waits for minutes where nobody answers, and may end the process; this does not."""
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


def _keep_silent() -> None:
    """An instance that this process starts sends no report of use to the makers of Ray."""
    with suppress(ImportError):
        from ray._common.usage.usage_lib import set_usage_stats_enabled_via_env_var

        set_usage_stats_enabled_via_env_var(False)
