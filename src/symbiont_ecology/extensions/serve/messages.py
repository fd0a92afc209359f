"""Messages between the process of HTTP and that of the engine, and the channel that carries them.

Each message is one frozen dataclass, and one line of JSON on the wire. ``Ask``, ``Cancel``,
``Judge`` and ``AskStatus`` go to the engine; ``Facts``, ``State``, ``TokenWritten``, ``Done``,
``Judged``, ``StatusTold`` and ``Closed`` come from it.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

from pydantic import TypeAdapter

from symbiont_ecology.base.errors import DataError, EcologyError, HostError
from symbiont_ecology.base.types import Decoding, OrganelleId
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.streaming import NewToken

_log = logging.getLogger(__name__)
READ_BYTES = 1 << 20
"""Bytes that are read at a time: most messages whole."""
UNABLE = "the service could not do this: ask again later, or for fewer tokens"
"""The message to clients about trouble of the service itself, such as a full disk."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for ``choices`` replies to a prompt, which is as the host is asked.

    ``limit`` is in new tokens per reply, ``seconds`` is the time that all of it may take.
    ``wanted`` names the organelle that is asked; None leaves that to the strategy. A request that
    ``is_limited`` needs room for all tokens of its limit, since somebody named that number.
    ``has_scores`` asks for log-probabilities, ``alternatives`` for so many likeliest tokens.
    """

    id: str
    user: str
    family: str
    prompt: str
    limit: int
    decoding: Decoding
    seconds: float
    choices: int = 1
    seed: int | None = None
    alternatives: int = 0
    wanted: OrganelleId | None = None
    is_limited: bool = True
    has_scores: bool = False
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for the replies to this request any more."""

    id: str


@dataclass(frozen=True, slots=True)
class Judge:
    """The verdict of a user, or of an application that judges for all of them."""

    number: int
    verdict: GivenVerdict
    user: str
    is_for_all: bool


@dataclass(frozen=True, slots=True)
class AskStatus:
    """A question for the status of the service."""

    number: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Constants of a service; the first message of all.

    ``temperature`` and ``stop`` are those of practice. ``is_chat``: the host's chat template goes
    around prompts. ``has_texts``: the log holds prompts and replies.
    """

    temperature: float
    stop: tuple[str, ...]
    is_chat: bool
    has_texts: bool


@dataclass(frozen=True, slots=True)
class State:
    """Organelles that can be asked by name, and if nobody new is let in."""

    names: tuple[OrganelleId, ...]
    is_stopping: bool


@dataclass(frozen=True, slots=True)
class Answering:
    """The author of an answer, its prompt's length, and texts of tokens that have scores."""

    organelle: OrganelleId
    prompt_tokens: int
    texts: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class TokenWritten:
    """One more token of a reply that is streamed."""

    id: str
    choice: int
    token: NewToken
    answering: Answering


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status of HTTP, and the reason."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """An answer is on the disk, or refused. The replies of a streamed one were sent before."""

    id: str
    answering: Answering | None = None
    replies: tuple[tuple[NewToken, ...], ...] = ()
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict is on the disk, or refused."""

    number: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """Counts since the service began, and of the present. ``learning_error`` may hold words of a
    user."""

    is_stopping: bool
    generation: int
    verdicts: int
    waiting_verdicts: int
    left_out: int
    seconds_learning: float
    learning_error: str
    answers: int
    refused: int
    late: int
    prompt_tokens: int
    new_tokens: int
    open_requests: int
    rows: int
    organelles: int
    users: int


@dataclass(frozen=True, slots=True)
class StatusTold:
    """The status of the service."""

    number: int
    status: ServiceStatus


@dataclass(frozen=True, slots=True)
class Closed:
    """Nobody waits for an answer any more: HTTP may end."""


Message: TypeAlias = (
    Ask
    | Cancel
    | Judge
    | AskStatus
    | Facts
    | State
    | TokenWritten
    | Done
    | Judged
    | StatusTold
    | Closed
)
_KINDS = {kind.__name__: kind for kind in Message.__args__}


class Channel(Protocol):
    """One end of the connection between the two processes. Any thread may send, one reads."""

    def send(self, message: Message) -> None:
        """Send a message. If the other end has gone, the reader of this one notices."""

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the other end has gone."""

    def close(self) -> None:
        """End the connection in both directions."""


@dataclass
class SocketChannel:
    """A channel through a socket."""

    end: socket.socket
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Message) -> None:
        data = encode(message)
        with self._lock, suppress(OSError):
            self.end.sendall(data)

    def __iter__(self) -> Iterator[Message]:
        with suppress(OSError), self.end.makefile("rb", READ_BYTES) as lines:
            for line in lines:
                if line.endswith(b"\n"):  # else it was torn
                    yield decode(line)

    def close(self) -> None:
        with suppress(OSError):
            self.end.shutdown(socket.SHUT_RDWR)
        self.end.close()


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    text = json.dumps([type(message).__name__, _plain(message)], ensure_ascii=False, default=_plain)
    return text.encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of a line."""
    kind, values = json.loads(line)
    message: Message = _adapter(kind).validate_python(values)
    return message


def _plain(value: object) -> dict[str, object]:
    if not is_dataclass(value):
        raise TypeError(f"{value!r:.60} cannot be sent")
    return {part.name: getattr(value, part.name) for part in fields(value)}


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[kind])


class LateError(EcologyError):
    """An answer was not done in time."""


class RequestRefusedError(EcologyError):
    """A client is told this instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def refusal_of(error: EcologyError) -> Refusal:
    """Return what a client is told of an error. What the library refuses is the client's mistake;
    trouble of disk, memory or another server may name paths and is for the log alone."""
    if isinstance(error, RequestRefusedError):
        return Refusal(error.status, error.message)
    if isinstance(error, DataError | HostError):
        return Refusal(400, str(error))
    if isinstance(error, LateError):
        return Refusal(504, str(error))
    _log.error("request failed", extra={"reason": str(error)})
    return Refusal(503, UNABLE)


def raised(refusal: Refusal | None) -> RequestRefusedError | None:
    """Return a refusal as an error."""
    return None if refusal is None else RequestRefusedError(refusal.status, refusal.message)
