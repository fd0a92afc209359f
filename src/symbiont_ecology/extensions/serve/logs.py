"""The log of a service: lines of JSON on stderr, for machines.

Writing a line lets other threads take over, and a request must not wait for that. So a thread
writes the lines that have gathered, ten times a second.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

_LOGGER = logging.getLogger("symbiont_ecology")
SECONDS_BETWEEN_WRITES, MAX_PIPE_BYTES = 0.1, 4096
"""Bytes that a pipe takes whole (``PIPE_BUF`` of Linux); lines are of ASCII."""
RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {name: value for name, value in vars(record).items() if name not in RECORD_FIELDS}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(head | facts, default=str)


class BufferedLines(logging.Handler):
    """Writes lines soon, in a thread of its own. ``flush`` writes them at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._lines = stream, list[str]()
        self._writing, self._is_closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def flush(self) -> None:
        """Write what has gathered. It is lost if nobody reads the stream any more."""
        with self._writing:
            self.acquire()
            lines, self._lines = self._lines, []
            self.release()
            with suppress(OSError, ValueError):
                for piece in _pieces(lines):
                    self._stream.write(piece)
                    self._stream.flush()

    def close(self) -> None:
        """Write the last lines."""
        self._is_closed.set()
        self.flush()
        super().close()

    def _write_all(self) -> None:
        while not self._is_closed.wait(SECONDS_BETWEEN_WRITES):
            self.flush()


def _pieces(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines in pieces that a pipe takes whole, beside those of another process."""
    piece = ""
    for line in lines:
        if piece and len(piece) + len(line) >= MAX_PIPE_BYTES:
            yield piece
            piece = ""
        piece += f"{line}\n"
    if piece:
        yield piece


def log_as_json() -> None:
    """Send the log of this package to stderr from now on."""
    handler = BufferedLines(sys.stderr)
    handler.setFormatter(JsonLines())
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.addHandler(handler)


def flush_log() -> None:
    """Write log lines that are not written yet."""
    for handler in _LOGGER.handlers:
        handler.flush()
