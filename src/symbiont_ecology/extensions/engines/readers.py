"""vLLM and SGLang as readers of exported adapters: the command line that starts a server with them.

An adapter's name there ends in a hash of its weights, so that a later one cannot be taken for it.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from symbiont_ecology.adapters.peft_files import (
    WEIGHTS_FILE,
    adapter_modules,
    ending_of,
    stated_rank,
)
from symbiont_ecology.base.files import content_hash
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.evaluate.export import Reader, readers
from symbiont_ecology.run.run import Run

LEGAL_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that ``--max-lora-rank`` of vLLM takes."""
MAX_TOGETHER = 32
"""Adapters of one batch that a command line asks a server for."""
LISTENING = ("--host", "127.0.0.1", "--port", "8000", "--enable-lora", "--max-lora-rank")


class ServerReader(Reader, ABC):
    """A server that is started with exported adapters."""

    is_portable: ClassVar[bool] = True

    @abstractmethod
    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        """Return the words that start it with adapters by name."""

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        folders = {name: (target / name).resolve() for name in names}
        served = {
            f"{name}-{content_hash(folder / WEIGHTS_FILE)[:8]}": folder
            for name, folder in folders.items()
        }
        start = self.start(run.kernel.name_or_path, served)
        return ["start it:", f"  {shlex.join(start)}"]


@readers.register("vllm")
@dataclass(frozen=True)
class VllmReader(ServerReader):
    """A vLLM server."""

    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        rank, together = _rank(served), min(len(served), MAX_TOGETHER)
        legal = next((size for size in LEGAL_RANKS if size >= rank), rank)
        words = ["vllm", "serve", model, *LISTENING, str(legal), "--max-loras", str(together)]
        words += ["--max-cpu-loras", str(len(served)), "--lora-modules"]
        return [*words, *(f"{name}={folder}" for name, folder in served.items())]


@readers.register("sglang")
@dataclass(frozen=True)
class SglangReader(ServerReader):
    """An SGLang server, in which the bare host takes a place in a batch, too."""

    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        together = min(len(served), MAX_TOGETHER) + 1
        modules = {module for folder in served.values() for module in adapter_modules(folder)}
        words = ["python", "-m", "sglang.launch_server", "--model-path", model, *LISTENING]
        words += [str(_rank(served)), "--max-loras-per-batch", str(together), "--max-loaded-loras"]
        words += [str(max(len(served), together)), "--lora-target-modules"]
        words += [*sorted(set(map(ending_of, modules))), "--lora-paths"]
        return [*words, *(f"{name}={folder}" for name, folder in served.items())]


def _rank(served: Mapping[str, Path]) -> int:
    return max(map(stated_rank, served.values()))
