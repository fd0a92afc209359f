"""Messages between the process of HTTP and that of the engine."""

from __future__ import annotations

import math
import socket

import pytest

from symbiont_ecology.base.types import Decoding
from symbiont_ecology.extensions.serve.journal import GivenVerdict
from symbiont_ecology.extensions.serve.messages import (
    Answering,
    Ask,
    AskStatus,
    Cancel,
    Closed,
    Done,
    Facts,
    Judge,
    Judged,
    Message,
    Refusal,
    ServiceStatus,
    SocketChannel,
    State,
    StatusTold,
    TokenWritten,
    encode,
)
from symbiont_ecology.extensions.serve.streaming import NewToken

TEXT = "two\nlines 𝔘\u2028 \x1d\x00"
TOKEN = NewToken(7, 12, -0.25, "a\u0301", "stop", {12: -0.25, 3: -math.inf})
ANSWERING = Answering("o7", 5, {12: TEXT, 3: ""})
STATUS = ServiceStatus(True, 3, 4, 1, 0, 0.5, TEXT, 6, 0, 0, 70, 80, 1, 2, 9, 24)
MESSAGES = (
    Ask("chatcmpl-1", "ada", "math.add", TEXT, 16, Decoding(0.7, stop=("\n",)), 2.5, seed=-1),
    Cancel("chatcmpl-1"),
    Judge(1, GivenVerdict("chatcmpl-1", True, 1, 0.75, TEXT), "ada", False),
    AskStatus(2),
    Facts(1.0, ("\n",), False, True),
    State(("o1", "o2"), False),
    TokenWritten("chatcmpl-1", 0, TOKEN, ANSWERING),
    Done("chatcmpl-1", ANSWERING, ((TOKEN, TOKEN), ())),
    Done("chatcmpl-2", refusal=Refusal(503, TEXT)),
    Judged(1),
    StatusTold(2, STATUS),
    Closed(),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    ours, theirs = map(SocketChannel, socket.socketpair())
    ours.send(message)
    ours.close()
    assert list(theirs) == [message]


def test_a_torn_message_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(encode(Closed()) + encode(Judged(1))[:-3])
    ours.close()
    assert list(SocketChannel(theirs)) == [Closed()]


def test_sending_to_a_closed_end_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    for _ in range(3):
        SocketChannel(ours).send(Closed())
