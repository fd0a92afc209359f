"""Files that are there whole or not at all, and logs that a crash may have torn."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from symbiont_ecology.errors import RunError

DEEPEST = 100
"""Levels of nesting in data of others: deeper ones overflow the stack of whoever shows them."""
LONGEST_DIGITS = 4300
"""Of a whole number in text: beyond that, Python refuses to read it."""


def read_regular(path: Path, most_megabytes: float) -> str:
    """The text of a file that somebody else wrote, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file (a pipe or a device may be endless), too large, or no
            UTF-8.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("expected a regular file, got a folder, a pipe or a device")
    if status.st_size > most_megabytes * 2**20:
        raise ValueError(
            f"the file has {status.st_size / 2**20:.0f} MB, at most {most_megabytes:g} are read"
        )
    return path.read_text(encoding="utf-8-sig")


def parse_json(text: str) -> object:
    """JSON that somebody else wrote.

    Raises:
        ValueError: it is no JSON, a number in it is too long, or it is nested too deep.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from None
    if text.count("[") + text.count("{") > DEEPEST:  # a look at every value would be slow
        check_depth(value)
    return value


def check_depth(value: object) -> None:
    """Refuses values within values within values.

    Raises:
        ValueError: they are nested too deep.
    """
    level = [value]
    for _ in range(DEEPEST):
        within: list[object] = []
        for one in level:
            if isinstance(one, dict | list):
                within += one.values() if isinstance(one, dict) else one
        if not within:
            return
        level = within
    raise ValueError(f"nested deeper than {DEEPEST} levels")


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
