"""Engines that answer: the kernel itself, or a server that is given the adapters.

    host: {engine: {kind: vllm, url: "http://127.0.0.1:8000", adapters_folder: published}}

The kernel learns and scores in any case. Another engine is one new file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from symbiont_ecology.registry import Registry

if TYPE_CHECKING:
    from symbiont_ecology.host.engines.served import ServedHost
    from symbiont_ecology.host.kernel import HostKernel


class Engine(Protocol):
    """What answers the questions of a run."""

    def check(self, slots: int, *, is_perturbed: bool) -> None:
        """Whether it can answer for so many slots, and with noise if the learning rule wants it.

        Raises:
            ConfigError: it cannot.
        """

    def host(self, load: Callable[[], HostKernel]) -> HostKernel | ServedHost:
        """The host whose questions it answers. What can be asked before the kernel is loaded is
        asked before.

        Raises:
            HostError: there is no such server, or it serves another model.
        """


engines: Registry[Engine] = Registry("engine", "symbiont_ecology.host.engines")


@engines.register("kernel")
@dataclass(frozen=True)
class KernelEngine:
    """The kernel answers what it also learns: one process, one copy of the host."""

    def check(self, slots: int, *, is_perturbed: bool) -> None:
        """It can all of it."""

    def host(self, load: Callable[[], HostKernel]) -> HostKernel:
        """The kernel alone."""
        return load()


def kernel_of(host: object) -> HostKernel | None:
    """The kernel that a host is, or has beside a server; None for a host of another kind."""
    from symbiont_ecology.host.engines.served import ServedHost
    from symbiont_ecology.host.kernel import HostKernel

    found = host.kernel if isinstance(host, ServedHost) else host
    return found if isinstance(found, HostKernel) else None
