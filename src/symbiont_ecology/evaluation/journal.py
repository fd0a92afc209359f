"""A run's log of evaluations: a line for each, and beside it what it takes to make it again.

``evaluated/`` holds the state that was asked (``<generation>.json``) and every file that was, under the hash
of its content: a run can be moved, and its evaluations go with it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from symbiont_ecology.config import find_data
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.errors import RunError
from symbiont_ecology.files import read_lines

EVALUATIONS_FILE = "evaluations.jsonl"


def lines(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The evaluations of a run, with the numbers of their lines."""
    return read_lines(folder / EVALUATIONS_FILE)


def append(folder: Path, record: dict[str, Any], files: dict[str, str]) -> None:
    """Adds a line, and keeps the files that it names, by name and hash.

    Raises:
        RunError: something cannot be written.
    """
    path = folder / EVALUATIONS_FILE
    try:
        for name, digest in files.items():
            _keep(find_data(Path(name)), folder / checkpoint.MOMENTS / digest)
        with path.open("a+b") as file:
            file.seek(max(file.seek(0, 2) - 1, 0))
            torn = file.read(1) not in (b"", b"\n")  # a crash left half a line, which must not take this one
            file.write(b"\n" * torn + json.dumps(record).encode() + b"\n")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def content_hash(name: str) -> str:
    """Of a file's content, or of all files of a folder; empty where there is none."""
    path = find_data(Path(name))
    parts = sorted(path.glob("adapter_*")) if path.is_dir() else [path] if path.is_file() else []
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest() if parts else ""


def _keep(source: Path, target: Path) -> None:
    """Copies a file, or the adapter of a PEFT folder; whole or not at all."""
    if target.exists() or not source.exists():
        return
    target.parent.mkdir(exist_ok=True)
    half = target.with_name(f"{target.name}.new")
    if source.is_dir():
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for part in source.glob("adapter_*"):
            shutil.copyfile(part, half / part.name)
    else:
        shutil.copyfile(source, half)
    half.replace(target)
