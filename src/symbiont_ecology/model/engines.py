"""Engines, which answer the questions of a run or a service: the kernel, or one that an extension
registers.

    host: {engine: {kind: vllm, url: "http://127.0.0.1:8000", adapters_folder: published}}

The kernel learns and scores in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symbiont_ecology.base.registry import Registry

if TYPE_CHECKING:
    from symbiont_ecology.model.kernel import HostKernel


engines: Registry[Engine] = Registry("engine", __name__)


@engines.register("kernel")
@dataclass(frozen=True)
class Engine:
    """The kernel answers what it also learns: one process, one copy of the host. Others derive from
    it."""

    def check(self, slots: int) -> None:
        """Check that it can answer for so many slots.

        Raises:
            ConfigError: it cannot.
        """

    def reach(self) -> None:
        """Check what can be checked before the kernel is loaded.

        Raises:
            HostError: there is no such server, or it serves another model.
        """

    def host(self, load: Callable[[], HostKernel]) -> HostKernel:
        """Return the kernel, with its questions answered by this engine.

        Raises:
            HostError: see ``reach``; or it serves another model than the kernel's.
        """
        return load()
