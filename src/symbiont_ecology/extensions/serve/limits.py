"""Bounds of what comes in by HTTP: how large, how often, and under which name."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
LARGEST_BODY, SLOWEST_BODY = 512 * 1024, 30.0
"""Bytes of a request, and seconds that it may take to come."""
MOST_BUCKETS = 65_536
"""Users whose rate is watched; of more, the longest silent ones are forgotten."""


@dataclass(frozen=True)
class HttpLimits:
    """What the server lets in.

    ``per_minute`` are requests of a user, ``seconds`` is the longest that an answer may take,
    ``most_waiting`` are requests that may wait.
    """

    per_minute: float = 600.0
    seconds: float = 120.0
    most_tokens: int = 256
    most_waiting: int = 1024


@dataclass
class RateLimit:
    """At most so many requests a minute from each user (token bucket). A burst may have as many,
    and always one."""

    per_minute: float
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def seconds_to_wait(self, user: str) -> float:
        """0 if a request may be made now, and counts it; else after how many seconds."""
        now, rate, burst = time.monotonic(), self.per_minute / 60, max(self.per_minute, 1.0)
        tokens, moment = self._buckets.pop(user, (burst, now))
        tokens = min(tokens + (now - moment) * rate, burst)
        is_allowed = tokens >= 1
        self._buckets[user] = (tokens - 1 if is_allowed else tokens), now
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1 - tokens) / rate


class BodyLimit:
    """ASGI middleware: a request that is too large is refused before it is read whole."""

    def __init__(self, app: AsgiApp, most: int = LARGEST_BODY) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if any(not value.isdigit() or int(value) > self._most for value in lengths):
            await refuse(send, 413, f"expected at most {self._most} bytes")
            return
        try:
            async with asyncio.timeout(SLOWEST_BODY):
                body = await self._whole(receive)
        except TimeoutError:
            await refuse(send, 408, f"expected a request within {SLOWEST_BODY:g} seconds")
            return
        if body is None:
            return
        if len(body) > self._most:
            await refuse(send, 413, f"expected at most {self._most} bytes")
            return
        is_told = False

        async def replay() -> AsgiMessage:
            """The body at once, and then whatever comes."""
            nonlocal is_told
            if is_told:
                return await receive()
            is_told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _whole(self, receive: Receive) -> bytes | None:
        """The body, or a little more than may come; None if the client goes away."""
        body = bytearray()
        while len(body) <= self._most:
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
        """Passes on what comes from here."""
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
    """Without the port."""
    return host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]


async def refuse(send: Send, status: int, message: str) -> None:
    """Answers with an error in OpenAI's form."""
    from symbiont_ecology.extensions.serve.replies import error_body

    body = error_body(status, message)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
