"""The memory of a run: an append-only log of typed events, the only thing that analysis reads.

One JSON line per event, numbered from 0 behind a header line with the schema version::

    {"schema":1}
    {"seq":0,"kind":"Born","generation":0,"id":"o1","operator":"founder","parents":[],...}

Lines hold no time of day, so equal runs write equal bytes. What can happen is in ``events``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import MISSING
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.events import Event
from symbiont_ecology.base.files import append_lines, json_line, opened
from symbiont_ecology.base.removed import with_present_fields

SCHEMA = 1
"""Raise it when an event loses a field or a field changes its meaning; a new kind leaves it
alone."""


class EventLog:
    """The writing end of a log. The caller keeps the sequence number: it is part of a run's
    state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened(path, "a+b") as file:
            file.seek(0)
            header = file.readline()
            if not header.endswith(b"\n"):  # new, or killed while the header was written
                file.truncate(0)
                file.write(_HEADER)
            elif header != _HEADER:
                raise RunError(f"{path}: expected a log of schema {SCHEMA}, got {header!r:.60}")

    def emit(self, seq: int, *events: Event) -> int:
        """Append the events as numbers ``seq``, ``seq + 1``, … and return the next number.

        Raises:
            ValueError: a field is NaN, infinite or no plain value; nothing is written then.
            RunError: the file cannot be written.
        """
        lines = (_line(number, event) for number, event in enumerate(events, seq))
        append_lines(self.path, b"".join(lines))
        return seq + len(events)

    def sync(self) -> None:
        """Return when everything emitted so far would survive a power cut.

        Raises:
            RunError: the disk is full or gone.
        """
        with opened(self.path, "ab") as file:
            os.fsync(file.fileno())

    def rewind(self, seq: int) -> None:
        """Drop event ``seq`` and everything behind it, a line torn by a crash included.

        Raises:
            RunError: the log holds fewer than ``seq`` whole events, so the state is not of this
                log.
        """
        with opened(self.path, "r+b") as file:
            for number in range(seq + 1):  # the header, then seq events
                if not file.readline().endswith(b"\n"):
                    found = max(number - 1, 0)
                    raise RunError(f"{self.path} holds {found} events, expected at least {seq}")
            file.truncate(file.tell())


class LogReader:
    """The reading end of a log that may still grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = self._line = 0
        self._last = b""

    def news(self) -> Iterator[Event]:
        """Yield the events that came since the last call, without a last line that is not whole.

        Raises:
            RunError: no such log, another schema, an unknown kind, a damaged line, a gap in the
                numbers, or what was read before is not there any more (``LogRewoundError``).
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise RunError(f"cannot read events from {self.path}: {error.strerror}") from error
        with file:
            file.seek(self._offset - len(self._last))
            if file.read(len(self._last)) != self._last:
                raise LogRewoundError(f"{self.path} was rewound: read it anew")
            for line in file:
                if not line.endswith(b"\n"):
                    return
                where = f"{self.path} line {self._line + 1}"
                row = _row(line, where)
                if self._line:
                    yield _event(row, self._line - 1, where)
                elif row != {"schema": SCHEMA}:
                    raise RunError(f"{where}: expected a log of schema {SCHEMA}, got {row!r:.60}")
                self._offset += len(line)
                self._line += 1
                self._last = line


class LogRewoundError(RunError):
    """A run went on from an earlier checkpoint, so what was read of its log does not hold."""


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a log in order, without a last line that a crash has torn.

    Raises:
        RunError: no such log, another schema, an unknown kind, a damaged line, or a gap in the
            numbers.
    """
    return LogReader(path).news()


def _row(line: bytes, where: str) -> dict[str, object]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{where}: not JSON ({error})") from error


_HEADER = json_line({"schema": SCHEMA})


def _line(seq: int, event: Event) -> bytes:
    """Return one event as JSON. A field is left out where it has its default."""
    kind = type(event)
    fields = {
        name: value for name, value in vars(event).items() if value != getattr(kind, name, MISSING)
    }
    try:
        return json_line({"seq": seq, "kind": kind.__name__, **fields})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{event} cannot be written as JSON: {error}") from error


def _event(row: dict[str, object], seq: int, where: str) -> Event:
    number, kind = row.pop("seq", None), row.pop("kind", None)
    if number != seq:
        raise RunError(f"{where}: expected event {seq}, got {number}")
    if kind not in Event.kinds:
        raise RunError(f"{where}: unknown event kind {kind!r}, known: {', '.join(Event.kinds)}")
    try:
        return _adapter(kind).validate_python(with_present_fields(row))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RunError(f"{where}: {kind}.{place}: {first['msg']}") from error


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    return TypeAdapter(Event.kinds[kind])
