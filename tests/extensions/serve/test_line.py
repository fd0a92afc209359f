"""The line between the process of HTTP and that of the engine."""

from __future__ import annotations

import math
import socket

from symbiont_ecology.extensions.serve.line import Line, read_token, written_token
from symbiont_ecology.host.streaming import NewToken


def test_what_is_sent_is_read_whatever_people_write() -> None:
    ours, theirs = socket.socketpair()
    line, other = Line(ours), Line(theirs)
    texts = ["two\nlines", "\ud800", "𝔘\u2028", "", "\x1d\x00"]
    line.send("ask", number=1, texts=texts, score=-math.inf)
    line.close()
    assert list(other) == [{"kind": "ask", "number": 1, "texts": texts, "score": -math.inf}]


def test_a_message_that_was_torn_is_none() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b'{"kind": "end"}\n{"kind": "sta')
    ours.close()
    assert list(Line(theirs)) == [{"kind": "end"}]


def test_who_sends_to_nobody_goes_on() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    for _ in range(3):
        Line(ours).send("end")


def test_a_token_keeps_what_is_known_of_it() -> None:
    token = NewToken(7, 12, -0.25, "a\u0301", "stop", {12: -0.25, 3: -2.0})
    again = read_token(written_token(token))
    assert again == NewToken(-1, 12, -0.25, "a\u0301", "stop", {12: -0.25, 3: -2.0})
