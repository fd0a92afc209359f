"""Messages between the process of HTTP and that of the engine."""

from __future__ import annotations

import multiprocessing
import pickle
import socket
from multiprocessing.connection import Connection

from symbiont_ecology.base.types import Decoding
from symbiont_ecology.extensions.serve.messages import (
    Ask,
    Cancel,
    Channel,
    Closed,
    RequestRefusedError,
    Told,
)

TEXT = "two\nlines 𝔘\u2028 \x1d\x00\ud800"


def test_messages_arrive_as_they_were_sent() -> None:
    ours, theirs = multiprocessing.Pipe()
    asked = Ask("chatcmpl-1", "ada", "math.add", TEXT, 16, Decoding(0.7, stop=("\n",)), 2.5)
    for message in (asked, Told(3, RequestRefusedError(503, TEXT))):
        Channel(ours).send(message)
    ours.close()
    heard, refused = Channel(theirs)
    assert heard == asked
    assert isinstance(refused, Told)
    assert isinstance(refused.what, RequestRefusedError)
    assert (refused.what.status, str(refused.what)) == (503, TEXT)


def test_a_torn_message_is_dropped_and_sending_to_a_closed_end_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    data = pickle.dumps(Cancel("a"))
    ours.sendall(len(data).to_bytes(4, "big") + data + len(data).to_bytes(4, "big") + data[:-3])
    ours.close()
    channel = Channel(Connection(theirs.detach()))
    assert list(channel) == [Cancel("a")]
    for _ in range(3):
        channel.send(Closed())
