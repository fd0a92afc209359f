"""The page: one HTML file with everything in it, which asks nothing of any network; and the same
page of a run that still lives, served on this machine alone.

Scripts are named by their hashes in the page's content security policy, so nothing that a model
wrote can ever run. Texts reach the page as JSON, and the page never reads them as HTML.

Two things are served, the page and its record, and nothing is read from a path that a request
names. A request must name this server as its host, so a page of the web cannot reach it under
another name (DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import ConfigError, EcologyError
from symbiont_ecology.base.files import Stamp, stamp_of
from symbiont_ecology.extensions.evoscope.history import History
from symbiont_ecology.extensions.evoscope.news import NEWS_KINDS
from symbiont_ecology.extensions.evoscope.record import PageRecord, run_record
from symbiont_ecology.run.open_run import TIMINGS_FILE

ASSETS = files("symbiont_ecology.extensions.evoscope") / "assets"
SCRIPTS = ("run", "canvas", "charts", "views", "lineage", "methods", "panels", "compare", "main")
"""In the order in which they need each other."""
LOOPBACK = "127.0.0.1"


def page_record(folders: Sequence[Path]) -> PageRecord:
    """Return what a page of these runs shows.

    Raises:
        RunError: one of them is no run, or its log is damaged.
    """
    return record_of([History.of_run(folder) for folder in folders])


def record_of(histories: Sequence[History]) -> PageRecord:
    """Return what a page of some histories shows."""
    return {"runs": list(map(run_record, histories)), "newsKinds": NEWS_KINDS, "live": False}


def page_html(record: PageRecord) -> str:
    """Return the whole page as HTML."""
    sources = ['"use strict";', *((ASSETS / f"{name}.js").read_text("utf-8") for name in SCRIPTS)]
    library, script = (ASSETS / "vendor/echarts.min.js").read_text("utf-8"), "\n".join(sources)
    connect = "'self'" if record["live"] else "'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src 'unsafe-inline'; img-src data: blob:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(", ".join(run["name"] for run in record["runs"])),
        "style": (ASSETS / "style.css").read_text("utf-8"),
        "record": embedded_json(record),
        "library": library,
        "script": script,
    }
    pieces = []
    for piece in (ASSETS / "page.html").read_text("utf-8").split("{{ "):
        name, mark, rest = piece.partition(" }}")
        pieces.append(parts[name] + rest if mark else piece)
    return "".join(pieces)


def embedded_json(record: Mapping[str, Any]) -> str:
    """Return JSON that cannot end its HTML element; what is no finite number is null."""
    text = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


class LiveRecord:
    """The record of runs that may grow, as JSON, with a tag that changes when it does."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._histories = [History.of_run(folder) for folder in folders]
        self._lock, self._seen = threading.Lock(), tuple[tuple[int, Stamp], ...]()
        self._body, self._version = b"", 0

    def latest(self) -> tuple[str, bytes]:
        """Return the tag and the record, of all generations that are whole."""
        with self._lock:
            seen = self._read_on()
            if seen != self._seen or not self._body:  # a run ends behind its last event
                self._body = embedded_json(self._record()).encode()
                self._seen, self._version = seen, self._version + 1
            return f'"{self._version}"', self._body

    def page(self) -> bytes:
        """Return the page with the record as it is now."""
        with self._lock:
            self._read_on()
            return page_html(self._record()).encode()

    def _read_on(self) -> tuple[tuple[int, Stamp], ...]:
        self._histories = [history.read_on() for history in self._histories]
        return tuple(
            (history.event_count, stamp_of(history.folder / TIMINGS_FILE))
            for history in self._histories
        )

    def _record(self) -> PageRecord:
        return {**record_of(self._histories), "live": True}


def live_server(folders: Sequence[Path], port: int = 0) -> ThreadingHTTPServer:
    """Return a server on this machine; port 0 takes a free one. ``serve_forever`` starts it.

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
    """Answers GET for the page and its record."""

    server: _Server
    server_version, sys_version, protocol_version = "evoscope", "", "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this server has another name\n")
            return
        try:
            self._answer(self.server.record)
        except EcologyError as error:  # the run's folder is damaged, or gone
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())

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
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is for people."""


class _Server(ThreadingHTTPServer):
    """The server with what it serves."""

    daemon_threads = True

    def __init__(self, record: LiveRecord, port: int) -> None:
        self.record = record
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that goes away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
