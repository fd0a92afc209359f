"""The page of a run that still lives: served on this machine alone, fed from the run's log.

Two things are served, the page and its record, and nothing is read from a path that a request
names. A request must name this server as its host, so a page of the web cannot reach it under
another name (DNS rebinding).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from symbiont_ecology.engine.living import EVENTS_FILE, TIMINGS_FILE
from symbiont_ecology.engine.run import read_config
from symbiont_ecology.errors import ConfigError, EcologyError
from symbiont_ecology.event_log import LogReader, LogRewoundError
from symbiont_ecology.evoscope.comparing import compared
from symbiont_ecology.evoscope.page import embedded_json, page_html, whole_record
from symbiont_ecology.evoscope.record import run_record
from symbiont_ecology.files import Stamp, stamp_of
from symbiont_ecology.history.history import History
from symbiont_ecology.transcripts import TRANSCRIPTS_FILE, read_transcripts

LOOPBACK = "127.0.0.1"


class FollowedRun:
    """A run whose log is read as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, read_config(folder, runs_plugins=False)
        self._begin()

    def _begin(self) -> None:
        self.history = History.of(self.config)
        self._reader, self._count = LogReader(self.folder / EVENTS_FILE), 0

    def read(self) -> int:
        """Reads what is new; returns how many events were read in all. A run that was resumed from
        an earlier checkpoint is read anew."""
        try:
            self._read_on()
        except LogRewoundError:
            self._begin()
            self._read_on()
        return self._count

    def _read_on(self) -> None:
        if (self.folder / EVENTS_FILE).exists():
            for event in self._reader.news():
                self.history.add(event)
                self._count += 1


class LiveRecord:
    """The record of runs that may grow, as JSON, with a tag that changes when it does."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._runs = [FollowedRun(folder) for folder in folders]
        self._lock, self._seen = threading.Lock(), tuple[tuple[int, Stamp], ...]()
        self._body, self._version = b"", 0

    def latest(self) -> tuple[str, bytes]:
        """The tag and the record, of all generations that are whole."""
        with self._lock:
            seen = tuple((run.read(), stamp_of(run.folder / TIMINGS_FILE)) for run in self._runs)
            if seen != self._seen or not self._body:  # a run ends behind its last event
                self._body = embedded_json(self._record()).encode()
                self._seen, self._version = seen, self._version + 1
            return f'"{self._version}"', self._body

    def page(self) -> bytes:
        """The page with the record as it is now."""
        with self._lock:
            for run in self._runs:
                run.read()
            return page_html(self._record()).encode()

    def _record(self) -> dict[str, object]:
        records = [
            run_record(
                run.history, run.config, run.folder, read_transcripts(run.folder / TRANSCRIPTS_FILE)
            )
            for run in self._runs
        ]
        histories = [(run.config, run.history) for run in self._runs]
        names = [run.folder.resolve().name for run in self._runs]
        comparison = compared(histories, names) if len(histories) > 1 else None
        return {**whole_record(records, comparison), "live": True}


def live_server(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine; port 0 takes a free one. ``serve_forever`` starts it.

    Raises:
        RunError: one of the folders holds no run.
        ConfigError: the port is taken.
    """
    try:
        return _Server(LiveRecord(folders), port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "expected 0 to 65535"
        raise ConfigError(f"--port {port}: {why}; take another one, or 0 for a free one") from error


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the page and its record."""

    server: _Server
    server_version, sys_version, protocol_version = "evoscope", "", "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """The page, or its record if that is new to the one who asks."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this server has another name\n")
            return
        try:
            self._answer(self.server.record)
        except EcologyError as error:  # the run's folder is damaged, or gone
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())

    def do_HEAD(self) -> None:
        """The same without a body."""
        self.do_GET()

    def _answer(self, record: LiveRecord) -> None:
        if self.path == "/":
            self._send(HTTPStatus.OK, record.page(), "text/html; charset=utf-8")
        elif self.path == "/record.json":
            tag, body = record.latest()
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, b"", tag=tag)
            else:
                self._send(HTTPStatus.OK, body, "application/json", tag)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"only / and /record.json are here\n")

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str = "text/plain", tag: str = ""
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
            **({"ETag": tag} if tag else {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal is for people."""


class _Server(ThreadingHTTPServer):
    """The server with what it serves."""

    daemon_threads = True

    def __init__(self, record: LiveRecord, port: int) -> None:
        self.record = record
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a browser that goes away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
