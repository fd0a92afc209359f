"""Who loads exported adapters: PEFT, or a server with the command line that starts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symbiont_ecology.errors import ConfigError
from symbiont_ecology.registry import did_you_mean

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.types import OrganelleId

PEFT = "peft"
"""The reader of every export; servers read less of what PEFT can say."""
ADDRESS = "http://127.0.0.1:8000"


def check_reader(reader: str) -> None:
    """Whether adapters can be written for a reader.

    Raises:
        ConfigError: nobody knows it.
    """
    from symbiont_ecology.host.engines import engines

    readers = (PEFT, *(name for name in engines.names() if name != "kernel"))
    if reader not in readers:
        raise ConfigError(
            f"export --for {reader}:{did_you_mean(reader, readers)} expected {', '.join(readers)}"
        )


def serving_lines(run: Run, reader: str, target: Path, names: Sequence[OrganelleId]) -> list[str]:
    """The command line that starts a server with exported adapters, and one that asks the first.

    An adapter's name there ends in a hash of its weights, so that a later one cannot be taken for
    it.
    """
    from symbiont_ecology.files import content_hash
    from symbiont_ecology.host.engines import engines
    from symbiont_ecology.host.engines.server import AnsweringServer
    from symbiont_ecology.weights.peft_files import WEIGHTS_FILE, adapter_modules, stated_rank
    from symbiont_ecology.weights.portable import ending_of

    engine = engines[reader]
    assert issubclass(engine, AnsweringServer)
    folders = {name: (target / name).resolve() for name in names}
    served = {
        f"{name}-{content_hash(folder / WEIGHTS_FILE)[:8]}": folder
        for name, folder in folders.items()
    }
    rank = max(map(stated_rank, folders.values()))
    modules = {module for folder in folders.values() for module in adapter_modules(folder)}
    endings = sorted(set(map(ending_of, modules)))
    prompt, limit = _first_question(run)
    start = engine.start(run.kernel.name_or_path, served, rank, endings)
    path, body = engine.example(next(iter(served)), prompt, limit)
    data = json.dumps(body, ensure_ascii=False)
    curl = ["curl", "-s", ADDRESS + path, "-H", "Content-Type: application/json", "-d", data]
    return ["start it:", f"  {shlex.join(start)}", "ask it:", f"  {shlex.join(curl)}"]


def _first_question(run: Run) -> tuple[str, int]:
    """A question as the host reads it, and the longest answer to it in tokens."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.rng import Draw

    mix = mixture(run.config)
    family, depth = mix.cells[0]
    item = mix.families[family].sample(depth, Draw(run.config.seed)("read", family, depth))
    kernel = run.kernel
    (text,) = kernel.codec.texts([item.prompt], is_chat=kernel.is_chat)
    return text, item.reply_limit
