"""Messages between the process of HTTP and that of the engine, and the channel that carries them.

``Ask``, ``Cancel``, ``Judge`` and ``AskStatus`` go to the engine; ``State``, ``TokenWritten``,
``Done``, ``Told`` and ``Closed`` come from it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TypeAlias

from symbiont_ecology.base.errors import DataError, EcologyError, HostError
from symbiont_ecology.base.types import Decoding, OrganelleId
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.streaming import NewToken

_log = logging.getLogger(__name__)
UNABLE = "the service could not do this: ask again later, or for fewer tokens"
"""The message to clients about trouble of the service itself, such as a full disk."""


class RequestRefusedError(EcologyError):
    """A client is told this, with a status of HTTP, instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)  # both, or it could not be sent
        self.status, self.message = status, message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for ``choices`` replies to a prompt, which is as the host is asked.

    ``limit`` is in new tokens per reply, ``seconds`` is the time that all of it may take.
    ``wanted`` names the organelle that is asked; None leaves that to the strategy. ``alternatives``
    and ``schema`` are those of ``StreamedRequest``.
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
    wanted: OrganelleId | None = None
    is_streamed: bool = False
    alternatives: int | None = None
    schema: str = ""


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
    """A question for the status of the service, and for the verdicts of a user."""

    number: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """Organelles that can be asked by name, and if nobody new is let in; the first message of all.

    ``temperature`` and ``stop`` are those of practice. ``is_chat``: the host's chat template goes
    around prompts.
    """

    names: tuple[OrganelleId, ...]
    is_stopping: bool
    temperature: float
    stop: tuple[str, ...]
    is_chat: bool


@dataclass(frozen=True, slots=True)
class TokenWritten:
    """One more token of a reply that is streamed."""

    id: str
    choice: int
    token: NewToken
    organelle: OrganelleId
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """An answer is on the disk, or refused. The replies of a streamed one were sent before."""

    id: str
    organelle: OrganelleId = ""
    prompt_tokens: int = 0
    replies: tuple[tuple[NewToken, ...], ...] = ()
    refusal: RequestRefusedError | None = None


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """Counts since the service began, and of the present. ``learning_error`` may hold words of a
    user. ``verdicts`` are the last ones of the user that was asked for, the oldest first, and who
    gave each reply."""

    learning_error: str
    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    verdicts: tuple[tuple[bool, OrganelleId], ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """The status that was asked for; or a verdict is on the disk (None), or refused."""

    number: int
    what: ServiceStatus | RequestRefusedError | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """Nobody waits for an answer any more: HTTP may end."""


Message: TypeAlias = Ask | Cancel | Judge | AskStatus | State | TokenWritten | Done | Told | Closed


@dataclass
class Channel:
    """One end of the connection between the two processes. Any thread may send, one reads. If the
    other end has gone, the reader of this one notices."""

    end: Connection[Message, Message]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Message) -> None:
        """Send a message."""
        with self._lock, suppress(OSError):
            self.end.send(message)

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the other end has gone; a torn one is left out."""
        with suppress(OSError, EOFError):
            while True:
                yield self.end.recv()


def refusal_of(error: EcologyError) -> RequestRefusedError:
    """Return what a client is told of an error. What the library refuses is the client's mistake;
    trouble of disk, memory or another server may name paths and is for the log alone."""
    if isinstance(error, RequestRefusedError):
        return error
    if isinstance(error, DataError | HostError):
        return RequestRefusedError(400, str(error))
    _log.error("request failed: %s", error)
    return RequestRefusedError(503, UNABLE)
