"""Append-only logs of JSON objects, one per line, whose last line a crash may have torn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import open_own

_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def json_line(record: Mapping[str, object]) -> bytes:
    """Return a line of a log.

    Raises:
        ValueError: a value is NaN, infinite or no plain value.
    """
    return _JSON.encode(record).encode() + b"\n"


def ignore_line(number: int) -> None:
    """Say nothing of a damaged line."""


@dataclass(frozen=True)
class JsonLog:
    """A log at a path, which need not be there yet. Bytes of a crash never join a new line."""

    path: Path

    def append(self, lines: bytes, *, is_synced: bool = False) -> None:
        """Add whole lines (``json_line``). Synced ones are on the disk when this returns.

        Raises:
            RunError: they cannot be written.
        """
        with self.opened("a+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * is_torn + lines)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())

    def sync(self) -> None:
        """Return when everything appended so far would survive a power cut.

        Raises:
            RunError: the disk is full or gone.
        """
        with self.opened("ab") as file:
            os.fsync(file.fileno())

    def truncate(self, lines: int) -> int:
        """Keep the first lines alone, and return how many whole ones were found of them.

        Raises:
            RunError: the log cannot be read or written.
        """
        with self.opened("r+b") as file:
            for found in range(lines):
                if not file.readline().endswith(b"\n"):
                    return found
            file.truncate(file.tell())
        return lines

    def records(
        self, damaged: Callable[[int], None] = ignore_line
    ) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the objects with the numbers of their lines, from 1; none where there is no file.
        A line that is no object is left out, and its number goes to ``damaged``.

        Raises:
            RunError: the log cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror}") from error
        for number, line in enumerate(data.splitlines(), 1):
            try:
                record = dict(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                damaged(number)
                continue
            yield number, record

    @contextmanager
    def opened(self, mode: str) -> Iterator[BinaryIO]:
        """Open the file as ``open_own`` does.

        Raises:
            RunError: it cannot be opened, or what the block does with it fails.
        """
        try:
            with open_own(self.path, mode) as file:
                yield file
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error
