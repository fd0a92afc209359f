"""Executors: where the host of a run does its work, in this process or in many.

A config names one under ``executor``. It decides where rows are computed and never what is asked;
results do not depend on how many workers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.run.runtime import Host


class PromptReader(Protocol):
    """Turns texts into token ids, as ``Host`` does."""

    def encode(self, prompts: Sequence[str]) -> list[np.ndarray]:
        """Return token ids of each prompt as the host reads it."""

    def encode_answers(self, answers: Sequence[str]) -> list[tuple[int, ...]]:
        """Return token ids of each text as the host would write it, end of answer included."""


class HostSource(Protocol):
    """Makes a host in whatever process; a value that can be sent there."""

    @property
    def threads(self) -> int:
        """CPU threads that a copy computes with."""

    @property
    def needs_gpu(self) -> bool:
        """True if a copy takes a GPU."""

    def load(self, slots: int | None = None) -> Host:
        """Return a copy of the host; with so many slots instead of its own number."""

    def reader(self, vocab: int) -> PromptReader:
        """Return its tokenizer alone, for token ids below ``vocab``."""


class Executor(Protocol):
    """A frozen dataclass."""

    def check(self) -> None:
        """Check that it can be used here; no model is loaded.

        Raises:
            MissingExtraError: a package that it needs is not installed.
        """

    def host(self, source: HostSource) -> Host:
        """Return the host, ready to work."""


executors: Registry[Executor] = Registry("executor", __name__)

NOT_DECIDING = ("executor.workers", "executor.address", "executor.seconds")
"""Keys of executors that no result depends on."""


@executors.register("local")
@dataclass(frozen=True)
class LocalExecutor:
    """One host, in the process of the run."""

    def check(self) -> None:
        return

    def host(self, source: HostSource) -> Host:
        return source.load()
