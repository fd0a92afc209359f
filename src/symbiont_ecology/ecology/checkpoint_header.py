"""The header of a checkpoint, with its checksum: by it a state that was torn, damaged or edited is
found out, and a log that is not the one that the state was made with.

It is the second line of the file; the fields of the state stand below it::

    {
     "checkpoint": {"format":4,"log":{"bytes":60199,"digest":"…"},"checksum":"…"},
     "seed": 0,

The checksum is over all other bytes. It is against accidents and edits by hand: who means harm can
compute it, too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash
from pydantic import TypeAdapter, ValidationError

from symbiont_ecology.base.errors import RunError

CHECKPOINT_FORMAT = 4


@dataclass(frozen=True)
class LogMark:
    """The part of a log that belongs to a checkpoint: so many bytes, and their digest."""

    bytes: int
    digest: str


@dataclass(frozen=True)
class CheckpointHeader:
    """Statements of a checkpoint about itself."""

    format: int
    log: LogMark | None
    checksum: str


def with_header(body: bytes, log: LogMark | None, version: int = CHECKPOINT_FORMAT) -> bytes:
    """Return a JSON object of several lines behind its header."""
    digest = xxhash.xxh3_128(_as_json(CheckpointHeader(version, log, "")))
    digest.update(body)
    header = CheckpointHeader(version, log, digest.hexdigest())
    return b"{\n" + _BEFORE + _as_json(header) + b",\n" + body.removeprefix(b"{\n")


def read_header(data: bytes, path: Path) -> CheckpointHeader:
    """Return the header of a checkpoint, if nothing was changed since it was written.

    Raises:
        RunError: something was, there is no header, or it is of a later version.
    """
    _, line, rest = (*data.split(b"\n", 2), b"", b"")[:3]
    try:
        header = _header.validate_json(line.removeprefix(_BEFORE).removesuffix(b","))
    except ValidationError as error:
        raise RunError(f"{path} is damaged: expected a checksum in its second line") from error
    if header.format > CHECKPOINT_FORMAT:
        raise RunError(
            f"{path} is of format {header.format}, and this version knows {CHECKPOINT_FORMAT}: "
            "install the version that wrote it"
        )
    if with_header(b"{\n" + rest, header.log, header.format) != data:
        raise RunError(f"{path} is damaged or was edited: its content does not match its checksum")
    return header


class GrowingLog:
    """The digest of a log that grows, each byte read once.

    ``mark`` looks at what came since the last one, and so finds what somebody else wrote there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest, self._bytes, self._lines = xxhash.xxh3_128(), 0, 0

    def mark(self, events: int) -> LogMark:
        """Take in what the log holds by now: its header and so many events, all whole.

        Raises:
            RunError: it holds something else, or cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._bytes)
                for line in file:
                    self._take(line, events)
        except OSError as error:
            raise RunError(f"cannot read events from {self.path}: {error.strerror}") from error
        if self._lines != events + 1:
            raise RunError(
                f"{self.path} holds {max(self._lines - 1, 0)} events, expected {events}: another "
                "process has changed it"
            )
        return LogMark(self._bytes, self._digest.hexdigest())

    def _take(self, line: bytes, events: int) -> None:
        number = self._lines - 1  # the header is no event
        is_next = self._lines == 0 or line.startswith(b'{"seq":%d,' % number)
        if not (is_next and line.endswith(b"}\n")) or number >= events:
            raise RunError(
                f"{self.path} line {self._lines + 1}: expected event {number}, got {line!r:.60}: "
                "another process has written to it"
            )
        self._digest.update(line)
        self._bytes += len(line)
        self._lines += 1


def mark_of(path: Path, length: int) -> LogMark:
    """Return the digest of the first so many bytes of a log; of fewer, if it holds no more.

    Raises:
        RunError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            part = file.read(length)
    except OSError as error:
        raise RunError(f"cannot read events from {path}: {error.strerror}") from error
    return LogMark(len(part), xxhash.xxh3_128(part).hexdigest())


_BEFORE = b' "checkpoint": '
_header = TypeAdapter(CheckpointHeader)


def _as_json(header: CheckpointHeader) -> bytes:
    return json.dumps(asdict(header), separators=(",", ":")).encode()
