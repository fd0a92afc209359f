"""Bounds of what comes in by HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from symbiont_ecology.extensions.serve import limits
from symbiont_ecology.extensions.serve.limits import BodyLimit, RateLimit


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says how long the body was."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(message["body"])).encode()})


def statuses(parts: list[dict[str, Any]], hangs: bool = False, most: int = 100) -> list[Any]:
    """What a client is told that sends these messages, and then nothing."""
    told, rest = list[Any](), iter(parts)

    async def receive() -> dict[str, Any]:
        part = next(rest, None)
        if part is None and hangs:
            await asyncio.sleep(60)
        return part or {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        told.append(message.get("status") or message["body"])

    scope = {"type": "http", "headers": []}
    asyncio.run(BodyLimit(echo, most)(scope, receive, send))
    return told


def piece(size: int, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


def test_a_body_in_pieces_comes_whole() -> None:
    assert statuses([piece(40, more=True), piece(30, more=False)]) == [200, b"70"]


def test_a_body_that_grows_too_large_is_refused_on_its_way() -> None:
    assert statuses([piece(60, more=True)] * 3)[0] == 413


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 0.05)
    assert statuses([piece(10, more=True)], hangs=True)[0] == 408


def test_who_goes_away_is_not_answered() -> None:
    assert statuses([piece(10, more=True)]) == []


def test_each_user_has_a_rate_of_its_own() -> None:
    rate = RateLimit(per_minute=2)
    waits = [rate.seconds_to_wait(user) for user in ("ada", "ada", "ada", "bob")]
    assert waits[:2] == [0, 0]
    assert 0 < waits[2] <= 30
    assert waits[3] == 0


def test_a_rate_below_one_a_minute_lets_one_in_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((0.0, 60.0, 120.0, 121.0))
    monkeypatch.setattr(limits.time, "monotonic", lambda: next(seconds))
    rate = RateLimit(per_minute=0.5)
    waits = [rate.seconds_to_wait("ada") for _ in range(4)]
    assert waits == [0, 60, 0, pytest.approx(119)]


def test_the_longest_silent_users_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BUCKETS", 2)
    rate = RateLimit(per_minute=1)
    for user in ("ada", "bob", "eve"):
        rate.seconds_to_wait(user)
    assert rate.seconds_to_wait("ada") == 0
