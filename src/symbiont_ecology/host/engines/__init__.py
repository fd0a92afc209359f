"""Engines that answer: the kernel itself, or a server that is given the adapters.

    host: {engine: {kind: vllm, url: "http://127.0.0.1:8000", adapters_folder: published}}

The kernel learns and scores in any case. Another engine is one new file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from symbiont_ecology.registry import Registry

if TYPE_CHECKING:
    from symbiont_ecology.host.continuous import ContinuousBatch
    from symbiont_ecology.host.engines.served import ServedHost
    from symbiont_ecology.host.kernel import HostKernel
    from symbiont_ecology.host.streaming import LostRow, NewToken, RowId, StreamedRequest


class Engine(Protocol):
    """What answers the questions of a run."""

    def check(self, slots: int) -> None:
        """Whether it can answer for so many slots.

        Raises:
            ConfigError: it cannot.
        """

    def reach(self) -> None:
        """Whether it is there: what can be asked before the kernel is loaded.

        Raises:
            HostError: there is no such server, or it serves another model.
        """

    def host(self, load: Callable[[], HostKernel]) -> HostKernel | ServedHost:
        """The host whose questions it answers.

        Raises:
            HostError: see ``reach``; or it serves another model than the kernel's.
        """

    def batch(self, kernel: HostKernel, slots: int) -> AnswerBatch:
        """The batch in which it answers the requests of a service, by ``slots`` adapters at a time.

        Raises:
            HostError: see ``host``.
        """


class AnswerBatch(Protocol):
    """Answers that are being written; rows join and leave between tokens (``ContinuousBatch``)."""

    def __len__(self) -> int:
        """Rows that are being written, or wait here for their prompts to be read."""

    def check(self, request: StreamedRequest) -> None:
        """Whether a request can be answered at all.

        Raises:
            HostError: it cannot.
            AdapterError: its adapter does not fit.
        """

    def join(self, requests: Sequence[StreamedRequest]) -> list[RowId]:
        """Takes in the first of these, as many as there is room for; returns their rows' ids."""

    def step(self) -> Sequence[NewToken | LostRow]:
        """What was written since the last step. Rows that end leave, and so do those that are
        lost."""

    def leave(self, rows: Sequence[RowId]) -> None:
        """Rows that nobody waits for any more leave."""


engines: Registry[Engine] = Registry("engine", "symbiont_ecology.host.engines")


@engines.register("kernel")
@dataclass(frozen=True)
class KernelEngine:
    """The kernel answers what it also learns: one process, one copy of the host."""

    def check(self, slots: int) -> None:
        """It can all of it."""

    def reach(self) -> None:
        """It is there."""

    def host(self, load: Callable[[], HostKernel]) -> HostKernel:
        """The kernel alone."""
        return load()

    def batch(self, kernel: HostKernel, slots: int) -> ContinuousBatch:
        """The kernel's own."""
        return kernel.continuous(slots)


def kernel_of(host: object) -> HostKernel | None:
    """The kernel that a host is, or has beside a server; None for a host of another kind."""
    from symbiont_ecology.host.engines.served import ServedHost
    from symbiont_ecology.host.kernel import HostKernel

    kernel = host.kernel if isinstance(host, ServedHost) else host
    return kernel if isinstance(kernel, HostKernel) else None
