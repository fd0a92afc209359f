"""The host in the process of the run itself."""

from __future__ import annotations

from dataclasses import dataclass

from symbiont_ecology.engine.executors import HostSource, executors
from symbiont_ecology.engine.runtime import Host


@executors.register("local")
@dataclass(frozen=True)
class LocalExecutor:
    """One host, in the process of the run."""

    def check(self) -> None:
        """It can always be used."""

    def host(self, source: HostSource) -> Host:
        """The host itself."""
        return source.load()
