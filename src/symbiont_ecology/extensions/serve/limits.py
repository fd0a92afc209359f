"""Limits of requests by HTTP: their size, the place that they come from, and their API keys."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.files import append_lines, json_line
from symbiont_ecology.base.names import user_name

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
MAX_BODY_BYTES, MAX_BODY_SECONDS = 512 * 1024, 30.0
NO_GUESSING = (b"x-content-type-options", b"nosniff")
KEY_PREFIX = "symbiont-"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of a service.

    ``learn_share`` is the part of the time that learning may take while somebody waits, 0 for
    never. ``patience`` are seconds that a verdict waits for others to be learned with. An answer
    may take ``seconds``, and have ``max_tokens`` new tokens.
    """

    learn_share: float = 0.25
    patience: float = 5.0
    seconds: float = 120.0
    max_tokens: int = 256


class HttpGuard:
    """ASGI middleware: a request that is too large, or too slow, is refused before it is read
    whole, and browsers must not guess the type of an answer."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, is_whole = 0, False
        deadline = asyncio.get_running_loop().time() + MAX_BODY_SECONDS

        async def bounded() -> AsgiMessage:
            nonlocal size, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                expected = f"expected a request within {MAX_BODY_SECONDS:g} seconds"
                raise HTTPException(408, expected) from None
            size, is_whole = size + len(message.get("body", b"")), not message.get("more_body")
            if size > MAX_BODY_BYTES:
                raise HTTPException(413, f"expected at most {MAX_BODY_BYTES} bytes")
            return message

        async def marked(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], NO_GUESSING]}
            await send(message)

        await self._app(scope, bounded, marked)


async def check_place(request: Request) -> None:
    """Check that a request names this machine, so that no page of the web reaches a service on
    loopback under another name (DNS rebinding), nor from another origin.

    Raises:
        HTTPException: it does not.
    """
    host, origin = (request.headers.get(name, "") for name in ("host", "origin"))
    name = host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]
    if name not in LOOPBACK_NAMES:
        raise HTTPException(421, "this service has another name")
    if origin and origin.partition("://")[2] != host:
        raise HTTPException(403, "expected a request from this service's own page")


class StoredKey(BaseModel):
    """A line of a file of keys; the user is null for a key of an application."""

    user: Annotated[str, AfterValidator(user_name)] | None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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
    """The keys of a service by their hashes, so that the file gives no key away."""

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
                key = StoredKey.model_validate_json(line)
            except ValidationError as error:
                raise DataError(
                    f'{path} line {number}: expected {{"user": a name or null, "sha256": "64 '
                    'digits"}, got another one'
                ) from error
            keys[key.sha256] = Access(key.user)
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
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    try:
        name = None if user is None else user_name(user)
    except ValueError as error:
        raise DataError(f"user: {error}") from error
    stored = StoredKey(user=name, sha256=_digest(key))
    append_lines(path, json_line(stored.model_dump()), is_synced=True)
    return key


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
