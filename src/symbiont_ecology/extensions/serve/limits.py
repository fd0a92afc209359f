"""Limits of requests by HTTP: their size, their rate, their host name, and their API keys."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.files import append_lines, json_line
from symbiont_ecology.extensions.serve.openai_api import MAX_USER_CHARS, error_body

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
MAX_BODY_BYTES, MAX_BODY_SECONDS = 512 * 1024, 30.0
MAX_BUCKETS = 65_536
"""Users whose rate is watched; of more, the longest silent ones are forgotten."""
KEY_PREFIX = "symbiont-"


@dataclass(frozen=True)
class HttpLimits:
    """Limits of the server.

    ``per_minute`` are requests of a user, ``seconds`` is the longest time of an answer,
    ``max_waiting`` are requests that may wait.
    """

    per_minute: float = 600.0
    seconds: float = 120.0
    max_tokens: int = 256
    max_waiting: int = 1024


@dataclass
class RateLimit:
    """A number of requests per minute and user (token bucket). A burst may have as many, and always
    one."""

    per_minute: float
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def seconds_to_wait(self, user: str) -> float:
        """Count a request and return 0; or return the seconds until one may be made."""
        now, rate, burst = time.monotonic(), self.per_minute / 60, max(self.per_minute, 1.0)
        tokens, moment = self._buckets.pop(user, (burst, now))
        tokens = min(tokens + (now - moment) * rate, burst)
        is_allowed = tokens >= 1
        self._buckets[user] = (tokens - 1 if is_allowed else tokens), now
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1 - tokens) / rate


class BodyLimit:
    """ASGI middleware: a request that is too large is refused before it is read whole."""

    def __init__(self, app: AsgiApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if any(not value.isdigit() or int(value) > self._max_bytes for value in lengths):
            await refuse(send, 413, f"expected at most {self._max_bytes} bytes")
            return
        try:
            async with asyncio.timeout(MAX_BODY_SECONDS):
                body = await self._whole(receive)
        except TimeoutError:
            await refuse(send, 408, f"expected a request within {MAX_BODY_SECONDS:g} seconds")
            return
        if body is None:
            return
        if len(body) > self._max_bytes:
            await refuse(send, 413, f"expected at most {self._max_bytes} bytes")
            return
        is_told = False

        async def replay() -> AsgiMessage:
            nonlocal is_told
            if is_told:
                return await receive()
            is_told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _whole(self, receive: Receive) -> bytes | None:
        """Return the body, or a little more than is allowed; None if the client goes away."""
        body = bytearray()
        while len(body) <= self._max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        return bytes(body)


class HostLimit:
    """ASGI middleware: a request must name this machine, so that no page of the web reaches a
    service on loopback under another name (DNS rebinding), nor from another origin."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if _name(host) not in LOOPBACK_NAMES:
            await refuse(send, 421, "this service has another name")
        elif origin and origin.partition("://")[2] != host:
            await refuse(send, 403, "expected a request from this service's own page")
        else:
            await self._app(scope, receive, send)


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _name(host: str) -> str:
    return host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]


async def refuse(send: Send, status: int, message: str) -> None:
    """Answer with an error in OpenAI's form."""
    body = error_body(status, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Access:
    """The rights of a key: everything as any user, or as the one that it names."""

    user: str | None = None

    @property
    def is_application(self) -> bool:
        """True if it may ask for any user, and any organelle by name."""
        return self.user is None


@dataclass(frozen=True)
class ApiKeys:
    """The keys of a service by their hashes, so that the file gives no key away.

    A line of the file is ``{"user": "ada", "sha256": "…"}``; the user is null for a key of an
    application, which asks for any user.
    """

    known: Mapping[str, Access]

    @classmethod
    def read(cls, path: Path) -> ApiKeys:
        """Return the keys of a file.

        Raises:
            DataError: it cannot be read, a line is damaged, or it holds no key.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the keys in {path}: {error}") from error
        keys = dict[str, Access]()
        for number, line in enumerate(lines, 1):
            try:
                key = json.loads(line)
                user, digest = key["user"], key["sha256"]
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{path} line {number}: {_EXPECTED}") from error
            if not (user is None or (isinstance(user, str) and user)) or not _is_digest(digest):
                raise DataError(f"{path} line {number}: {_EXPECTED}")
            keys[digest] = Access(user)
        if not keys:
            raise DataError(f"{path} holds no key: symbiont key {path} makes one")
        return cls(keys)

    def access(self, key: str) -> Access | None:
        """Return the rights of a key; None if it is not known."""
        return self.known.get(_digest(key))


def add_key(path: Path, user: str | None) -> str:
    """Make a key and keep its hash; the key itself is in the result alone.

    Raises:
        DataError: no request can name such a user.
        RunError: the file cannot be written.
    """
    if user is not None and not 1 <= len(user) <= MAX_USER_CHARS:
        raise DataError(
            f"user: expected a name of 1 to {MAX_USER_CHARS} characters, got {user!r:.40}"
        )
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    append_lines(path, json_line({"user": user, "sha256": _digest(key)}), is_synced=True)
    return key


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64


_EXPECTED = 'expected {"user": a name or null, "sha256": "64 digits"}'
