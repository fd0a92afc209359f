"""Executors: where the host of a run does its work, in this process or in many.

A config names one under ``executor``. It decides where rows are computed and never what is asked;
results do not depend on how many workers there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from symbiont_ecology.base.registry import Registry
from symbiont_ecology.model.locating import find_folder
from symbiont_ecology.run.config import HostConfig
from symbiont_ecology.run.runtime import Host

if TYPE_CHECKING:
    from symbiont_ecology.model.codec import TextCodec
    from symbiont_ecology.model.kernel import HostKernel


@dataclass(frozen=True)
class KernelSource:
    """Recipe of the host of a config, for whatever process its executor wants it in. Torch is
    imported when it is loaded, and not before."""

    config: HostConfig
    is_chat: bool

    def load(self, slots: int | None = None) -> HostKernel:
        """Load the host in this process."""
        import torch

        from symbiont_ecology.model.kernel import HostKernel

        torch.set_num_threads(self.config.threads)
        knobs = self.config.model_dump(exclude={"model", "threads", "engine"})
        knobs["slots"] = slots or self.config.slots
        return HostKernel.from_pretrained(self.config.model, **knobs, is_chat=self.is_chat)

    def reader(self, vocab: int) -> TextCodec:
        """Return its tokenizer alone."""
        from symbiont_ecology.model.codec import TextCodec
        from symbiont_ecology.model.loading import read_model_config

        folder = find_folder(self.config.model)
        codec = TextCodec(
            folder, read_model_config(folder), is_chat=self.is_chat, date=self.config.date
        )
        codec.vocab = vocab
        return codec


class Executor(Protocol):
    """A frozen dataclass."""

    def check(self) -> None:
        """Check that it can be used here; no model is loaded.

        Raises:
            MissingExtraError: a package that it needs is not installed.
        """

    def host(self, source: KernelSource) -> Host:
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

    def host(self, source: KernelSource) -> Host:
        return source.load()
