"""The line between the process of HTTP and that of the engine: lines of JSON through a socket.

To the engine go ``ask``, ``cancel``, ``judge`` and ``status``; from it come ``facts``, ``state``,
``token``, ``done``, ``judged``, ``status`` and ``end``. Numbers say which question a message
belongs to.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from symbiont_ecology.host.streaming import NewToken

READ_AT_ONCE = 1 << 20
"""Bytes that are read at a time: most messages whole."""


class Line:
    """One end of it. Any thread may send, one reads."""

    def __init__(self, end: socket.socket) -> None:
        self._socket, self._lock = end, threading.Lock()

    def send(self, kind: str, **message: object) -> None:
        """Sends a message. If the other end has gone, who reads hears of it."""
        text = json.dumps({"kind": kind, **message}, ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass") + b"\n"
        with self._lock, suppress(OSError):
            self._socket.sendall(data)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What comes, until the other end has gone."""
        with suppress(OSError), self._socket.makefile("rb", READ_AT_ONCE) as lines:
            for line in lines:
                if line.endswith(b"\n"):  # else it was torn
                    yield json.loads(line.decode("utf-8", "surrogatepass"))

    def close(self) -> None:
        """Both ends read nothing any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def written_token(token: NewToken) -> Sequence[object]:
    """A token as JSON has it."""
    alternatives = list(token.alternatives.items())
    return token.token_id, token.log_probability, token.text, token.end, alternatives


def read_token(written: Sequence[Any]) -> NewToken:
    """The same token, of no row."""
    token_id, score, text, end, alternatives = written
    return NewToken(-1, token_id, score, text, end, dict(map(tuple, alternatives)))
