"""Toys as workers have them: sources that Ray can send to other processes, which import this file
too."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import HostError
from symbiont_ecology.extensions.ray.executor import RayExecutor
from symbiont_ecology.extensions.ray.workers import ShardedHost
from symbiont_ecology.run.config import HostConfig
from symbiont_ecology.run.executors import executors
from toy import ToyHost
from toy_run import SlowHost


@dataclass
class DyingHost(ToyHost):
    """A host whose process dies in every rollout."""

    def rollout(self, *arguments: Any, **named: Any) -> Any:
        """Ends its process as the system does where memory is out."""
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class ToySource:
    """Makes toys; some that cannot be loaded, or die at work."""

    pause: float = 0.0
    fault: str = ""
    config: HostConfig = field(default_factory=HostConfig)

    def load(self, slots: int | None = None) -> ToyHost:
        """A toy with so many slots."""
        if self.fault == "load":
            raise HostError("expected a host on this machine, found none")
        if self.fault == "die":
            return DyingHost(slots or 32)
        return SlowHost(slots or 32, pause=self.pause)

    def reader(self, vocab: int) -> ToyHost:
        """A toy reads without weights."""
        return ToyHost()


def ray_host(source: Any, **knobs: object) -> ShardedHost:
    """A host that Ray's workers have."""
    _lead_here()
    executor = executors.build({"kind": "ray", "seconds": 100.0, **knobs})
    assert isinstance(executor, RayExecutor)
    return executor.host(source)


def _lead_here() -> None:
    """Workers find this file, if it is said before Ray is started: another file of tests may have
    started it."""
    import ray

    if ray.is_initialized() and str(Path(__file__).parent) not in os.environ.get("PYTHONPATH", ""):
        ray.shutdown()
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
