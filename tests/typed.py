"""What README and docs tell people to type, and why a test does not type some of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
SETTING = re.compile(r"[A-Z_]+=\S*")
LIVES = {"run": 1, "resume": 2}
"""Generations of what would live longer."""
NOT_TYPED = {
    r"^make |^\.venv|^(uv )?pip ": "installs, or takes long",
    r"^ray |^export |^grep |^tensorboard |VLLM|^python -m|engine=": "another program",
    r"Qwen3|qwen3|cuda": "a GPU",
    r"smollm2|host get|habitats/styles|demo_real|artifacts/small": "a real model",
    r"model\.gguf|log\.parquet|data/(mine|gsm8k-)|mine\.yaml|artifacts/embedded-v2": (
        "a file of the reader's; another file of tests types it"
    ),
    r"install-completion": "changes the shell of who types it",
    r"datasets get": "asks a hub; another file of tests types it",
    r"artifacts/ours|learn-from logs/|(suite|ablate)(?!.*dry-run)": (
        "minutes; another file of tests types it"
    ),
    r"^symbiont (demo|serve|calibrate|evolve)\b": "another file of tests types it",
    r"report_to|executor": "a package that is no dependency; another file of tests types it",
    r"^symbiont lm-eval|immigration": (
        "a package that is no dependency, or adapters of the reader's; other tests type it"
    ),
    r"^python ": "takes minutes, or is typed in tests/e2e/test_original_commands.py",
}
"""Commands in blocks that are parsed and not typed, by what is in them, with the reason."""


@dataclass(frozen=True)
class Typed:
    """A command in a page: a line of a block."""

    page: Path
    line: str

    @property
    def words(self) -> list[str]:
        """Its words, without settings of the environment and without the folder of the program."""
        words = shlex.split(self.line.partition(" > ")[0], comments=True)
        while words and SETTING.fullmatch(words[0]):
            words.pop(0)
        return [words[0].removeprefix(".venv/bin/"), *words[1:]] if words else []

    @property
    def reason(self) -> str:
        """Why it is not typed by a test; empty, if it is."""
        command = shlex.join(shlex.split(self.line, comments=True))
        return next((why for part, why in NOT_TYPED.items() if re.search(part, command)), "")


def fenced(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands_in(page: Path) -> Iterator[Typed]:
    """All commands in the blocks of a page."""
    for block in fenced(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield Typed(page, line)


def shortened(words: list[str], host: Path) -> list[str]:
    """A command of ``symbiont`` on a tiny host, and for a generation or two."""
    command, *rest = [word for word in words if word != "--open"]
    if command in LIVES:
        rest = [word for word in rest if not word.startswith("run.generations")]
        rest += [f"run.generations={LIVES[command]}", "--quiet"]
    if command == "run" and not any(word.startswith("host.model=") for word in rest):
        rest.append(f"host.model={host}")
    return [command, *rest]
