"""Calls of a server: JSON over HTTP, each within a time limit, patient where waiting helps.

This is ``http.client`` of the standard library: it follows no redirect and asks no proxy, so that
prompts and the key go to the server that was named and nowhere else; and a deadline over the whole
answer, which a slow drip of bytes cannot stretch, takes a loop of one's own with any client.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic, sleep
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from symbiont_ecology.errors import HostError

Schema = TypeVar("Schema", bound=BaseModel)

BUSY = frozenset({429, 502, 503, 504})
"""Status codes of a server that may answer later: full, or about to be there."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two tries; each pause is twice the one before."""
LARGEST_REPLY = 64 * 2**20
"""Bytes of one reply."""
_PIECE = 65536


class RefusedError(HostError):
    """A server understood a call and refused it."""

    def __init__(self, status: int, where: str, said: str) -> None:
        super().__init__(f"expected an answer from {where}, got status {status}: {said}")
        self.status, self.said = status, said


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens, and how long one waits for it."""

    url: str
    timeout: float
    """Seconds for one call, from connecting to the last byte."""
    patience: float
    """Seconds for which a call is repeated while the server is full, busy or away."""
    key: str | None = None

    def ask(self, schema: type[Schema], path: str, body: object = None) -> Schema:
        """The reply to a call as typed values: POST with a body, GET without.

        Raises:
            RefusedError: the server refused it.
            HostError: no reply in time, or one that is not as the schema says.
        """
        text = self.call(path, body)
        try:
            return schema.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise HostError(
                f"expected a reply that can be read from {self.url}{path}, got {_short(text)!r} "
                f"({reason}): is it another kind of server, or a proxy in front of it?"
            ) from error

    def call(self, path: str, body: object = None) -> bytes:
        """The raw reply to a call."""
        deadline, pause, address = monotonic() + self.patience, FIRST_PAUSE, f"{self.url}{path}"
        while True:
            try:
                status, reply = self._once(path, body)
            except TimeoutError as error:
                raise HostError(
                    f"expected an answer from {address} within {self.timeout:g} s, got none: look "
                    "at the server's log, or raise host.engine.timeout"
                ) from error
            except (OSError, HTTPException) as error:
                trouble = f"no connection ({error or type(error).__name__})"
                advice = "start the server, or correct host.engine.url"
            else:
                if status == 200:
                    return reply
                if status not in BUSY:
                    raise RefusedError(status, address, _said(reply))
                trouble, advice = f"status {status} ({_said(reply)})", "it is full or starting"
            if monotonic() + pause > deadline:
                raise HostError(
                    f"expected an answer from {address} within {self.patience:g} s of trying, got "
                    f"{trouble}: {advice}, or raise host.engine.patience"
                )
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self, path: str, body: object) -> tuple[int, bytes]:
        """Status and reply of one try."""
        parts, deadline = urlsplit(self.url), monotonic() + self.timeout
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        try:
            connection.request("GET" if data is None else "POST", parts.path + path, data, headers)
            response, pieces, size = connection.getresponse(), list[bytes](), 0
            while piece := response.read1(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if monotonic() > deadline:
                    raise TimeoutError
                if size > LARGEST_REPLY:
                    raise HostError(
                        f"expected a reply of at most {LARGEST_REPLY} bytes from {self.url}{path}, "
                        "got more: is it another kind of server?"
                    )
            if response.length:
                raise HTTPException(f"{response.length} bytes are missing")
            return response.status, b"".join(pieces)
        finally:
            connection.close()


def _said(reply: bytes) -> str:
    """The message in an error, wherever a server puts it, on one line."""
    try:
        message = json.loads(reply)
    except (ValueError, RecursionError):
        return _short(reply)
    if isinstance(message, dict) and isinstance(message.get("error"), dict):
        message = message["error"]
    if isinstance(message, dict):
        message = next(
            (message[key] for key in ("message", "error_message", "detail") if key in message), ""
        )
    return _short(str(message).encode())


def _short(reply: bytes) -> str:
    text = " ".join(reply[:1000].decode("utf-8", "replace").split())
    return f"{text[:200]}…" if len(text) > 200 else text
