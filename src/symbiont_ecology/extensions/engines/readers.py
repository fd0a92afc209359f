"""vLLM and SGLang as readers of exported adapters: the command line that starts a server with them,
and one that asks the first.

An adapter's name there ends in a hash of its weights, so that a later one cannot be taken for it.
"""

from __future__ import annotations

import json
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
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.evaluate.export import readers
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.run import Run

LEGAL_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that ``--max-lora-rank`` of vLLM takes."""
MAX_TOGETHER = 32
"""Adapters of one batch that a command line asks a server for."""
ADDRESS = "http://127.0.0.1:8000"
LISTENING = ("--host", "127.0.0.1", "--port", "8000", "--enable-lora", "--max-lora-rank")


class ServerReader(ABC):
    """A server that is started with exported adapters."""

    is_portable: ClassVar[bool] = True
    path: ClassVar[str]
    """Path of a question."""

    @abstractmethod
    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        """Return the words that start it with adapters by name."""

    @abstractmethod
    def body(self, name: str, prompt: str, limit: int) -> dict[str, object]:
        """Return a question to an adapter."""

    def advice(self, run: Run, target: Path, names: Sequence[OrganelleId]) -> list[str]:
        folders = {name: (target / name).resolve() for name in names}
        served = {
            f"{name}-{content_hash(folder / WEIGHTS_FILE)[:8]}": folder
            for name, folder in folders.items()
        }
        prompt, limit = _first_question(run)
        start = self.start(run.kernel.name_or_path, served)
        data = json.dumps(self.body(next(iter(served)), prompt, limit), ensure_ascii=False)
        curl = ["curl", "-s", ADDRESS + self.path]
        curl += ["-H", "Content-Type: application/json", "-d", data]
        return ["start it:", f"  {shlex.join(start)}", "ask it:", f"  {shlex.join(curl)}"]


@readers.register("vllm")
@dataclass(frozen=True)
class VllmReader(ServerReader):
    """A vLLM server."""

    path: ClassVar[str] = "/v1/completions"

    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        rank, together = _rank(served), min(len(served), MAX_TOGETHER)
        legal = next((size for size in LEGAL_RANKS if size >= rank), rank)
        words = ["vllm", "serve", model, *LISTENING, str(legal), "--max-loras", str(together)]
        words += ["--max-cpu-loras", str(len(served)), "--lora-modules"]
        return [*words, *(f"{name}={folder}" for name, folder in served.items())]

    def body(self, name: str, prompt: str, limit: int) -> dict[str, object]:
        return {"model": name, "prompt": prompt, "max_tokens": limit, "temperature": 0}


@readers.register("sglang")
@dataclass(frozen=True)
class SglangReader(ServerReader):
    """An SGLang server, in which the bare host takes a place in a batch, too."""

    path: ClassVar[str] = "/generate"

    def start(self, model: str, served: Mapping[str, Path]) -> list[str]:
        together = min(len(served), MAX_TOGETHER) + 1
        modules = {module for folder in served.values() for module in adapter_modules(folder)}
        words = ["python", "-m", "sglang.launch_server", "--model-path", model, *LISTENING]
        words += [str(_rank(served)), "--max-loras-per-batch", str(together), "--max-loaded-loras"]
        words += [str(max(len(served), together)), "--lora-target-modules"]
        words += [*sorted(set(map(ending_of, modules))), "--lora-paths"]
        return [*words, *(f"{name}={folder}" for name, folder in served.items())]

    def body(self, name: str, prompt: str, limit: int) -> dict[str, object]:
        sampling = {"max_new_tokens": limit, "temperature": 0}
        return {"text": prompt, "sampling_params": sampling, "lora_path": name}


def _rank(served: Mapping[str, Path]) -> int:
    return max(map(stated_rank, served.values()))


def _first_question(run: Run) -> tuple[str, int]:
    """Return a question as the host reads it, and the longest answer to it in tokens."""
    mix, kernel = mixture(run.config), run.kernel
    family, depth = mix.cells[0]
    item = mix.families[family].sample(depth, Draw(run.config.seed)("read", family, depth))
    (text,) = kernel.codec.texts([item.prompt], is_chat=kernel.is_chat)
    return text, item.reply_limit
