"""Files that are there whole or not at all, and logs that a crash may have torn."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from symbiont_ecology.errors import RunError


def write_whole(path: Path, text: str) -> None:
    """Writes a text by atomic rename: who is killed meanwhile leaves what was there before.

    Raises:
        RunError: it cannot be written.
    """
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file beside the path, for the block to write; it takes the path's place at the end.

    Raises:
        RunError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """The JSON objects of a log, with the numbers of their lines from 1; what a crash tore is left
    out.

    Raises:
        RunError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield number, dict(json.loads(line))
        except (ValueError, TypeError):
            continue


def append_line(path: Path, record: Mapping[str, object], *, is_synced: bool = False) -> None:
    """Adds a JSON object to a log; half a line that a crash left does not take it along.

    With ``is_synced`` it is on the disk when this returns.

    Raises:
        RunError: it cannot be written.
    """
    try:
        with path.open("a+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * is_torn + json.dumps(record).encode() + b"\n")
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def content_hash(path: Path) -> str:
    """Of a file, or of the adapter in a PEFT folder; empty where there is none."""
    parts = sorted(path.glob("adapter_*")) if path.is_dir() else [path] if path.is_file() else []
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest() if parts else ""


def free_folder(name: str) -> Path:
    """``artifacts/<name>-<n>`` with the first n that is free."""
    number = 1
    while (folder := Path("artifacts") / f"{name}-{number}").exists():
        number += 1
    return folder
