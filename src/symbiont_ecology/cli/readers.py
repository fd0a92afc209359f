"""Who loads exported adapters: PEFT, or a server with the command line that starts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import did_you_mean

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.base.types import OrganelleId

PEFT = "peft"
"""The reader of every export; servers read less of what PEFT can say."""
READERS = (PEFT, "sglang", "vllm")
LEGAL_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that ``--max-lora-rank`` of vLLM takes."""
MAX_TOGETHER = 32
"""Adapters of one batch that a command line asks a server for."""
ADDRESS = "http://127.0.0.1:8000"
LISTENING = ("--host", "127.0.0.1", "--port", "8000", "--enable-lora", "--max-lora-rank")


def check_reader(reader: str) -> None:
    """Refuse a reader for which adapters cannot be written.

    Raises:
        ConfigError: nobody knows it.
    """
    if reader not in READERS:
        raise ConfigError(
            f"export --for {reader}:{did_you_mean(reader, READERS)} expected {', '.join(READERS)}"
        )


def serving_lines(run: Run, reader: str, target: Path, names: Sequence[OrganelleId]) -> list[str]:
    """The command line that starts a server with exported adapters, and one that asks the first.

    An adapter's name there ends in a hash of its weights, so that a later one cannot be taken for
    it.
    """
    from symbiont_ecology.adapters.peft_files import (
        WEIGHTS_FILE,
        adapter_modules,
        ending_of,
        stated_rank,
    )
    from symbiont_ecology.base.files import content_hash

    folders = {name: (target / name).resolve() for name in names}
    served = {
        f"{name}-{content_hash(folder / WEIGHTS_FILE)[:8]}": folder
        for name, folder in folders.items()
    }
    rank = max(map(stated_rank, folders.values()))
    modules = {module for folder in folders.values() for module in adapter_modules(folder)}
    endings = sorted(set(map(ending_of, modules)))
    prompt, limit = _first_question(run)
    model, adapters = run.kernel.name_or_path, [f"{one}={at}" for one, at in served.items()]
    together, name = min(len(adapters), MAX_TOGETHER), next(iter(served))
    body: dict[str, object]
    if reader == "vllm":
        legal = next((size for size in LEGAL_RANKS if size >= rank), rank)
        start = ["vllm", "serve", model, *LISTENING, str(legal), "--max-loras", str(together)]
        start += ["--max-cpu-loras", str(len(adapters)), "--lora-modules", *adapters]
        body = {"model": name, "prompt": prompt, "max_tokens": limit, "temperature": 0}
        path = "/v1/completions"
    else:  # the bare host takes a place in a batch of SGLang, too
        start = ["python", "-m", "sglang.launch_server", "--model-path", model, *LISTENING]
        start += [str(rank), "--max-loras-per-batch", str(together + 1), "--max-loaded-loras"]
        start += [str(max(len(adapters), together + 1)), "--lora-target-modules", *endings]
        start += ["--lora-paths", *adapters]
        sampling = {"max_new_tokens": limit, "temperature": 0}
        body = {"text": prompt, "sampling_params": sampling, "lora_path": name}
        path = "/generate"
    data = json.dumps(body, ensure_ascii=False)
    curl = ["curl", "-s", ADDRESS + path, "-H", "Content-Type: application/json", "-d", data]
    return ["start it:", f"  {shlex.join(start)}", "ask it:", f"  {shlex.join(curl)}"]


def _first_question(run: Run) -> tuple[str, int]:
    """A question as the host reads it, and the longest answer to it in tokens."""
    from symbiont_ecology.base.rng import Draw
    from symbiont_ecology.run.build import mixture

    mix = mixture(run.config)
    family, depth = mix.cells[0]
    item = mix.families[family].sample(depth, Draw(run.config.seed)("read", family, depth))
    kernel = run.kernel
    (text,) = kernel.codec.texts([item.prompt], is_chat=kernel.is_chat)
    return text, item.reply_limit
