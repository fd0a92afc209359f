"""Executors: where the host of a run does its work, in this process or in many.

A config names one under ``executor``. It decides where rows are computed and never what is asked;
results do not depend on how many workers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.registry import Registry


class PromptReader(Protocol):
    """What turns texts into token ids, as ``Host`` has it."""

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each prompt as the host reads it."""

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of each text as the host would write it, end of answer included."""


class HostSource(Protocol):
    """How a host is made, in whatever process; a value that can be sent there."""

    @property
    def threads(self) -> int:
        """CPU threads that a copy computes with."""

    @property
    def needs_gpu(self) -> bool:
        """Whether a copy takes a GPU."""

    def load(self, slots: int | None = None) -> Host:
        """A copy of the host; with so many slots instead of its own number."""

    def reader(self, vocab: int) -> PromptReader:
        """Its tokenizer alone, for token ids below ``vocab``."""

    def memory(self, slots: int) -> int:
        """Bytes that a process with a copy and so many slots takes."""


class Executor(Protocol):
    """A frozen dataclass."""

    def check(self) -> None:
        """Whether it can be used here; no model is loaded.

        Raises:
            MissingExtraError: a package that it needs is not installed.
        """

    def host(self, source: HostSource) -> Host:
        """The host, ready to work."""


executors: Registry[Executor] = Registry("executor", "symbiont_ecology.engine.executors")

NOT_DECIDING = ("executor.workers", "executor.address", "executor.seconds")
"""Keys of executors that no result depends on."""
