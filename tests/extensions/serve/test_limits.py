"""Bounds of what comes in by HTTP, and whom it comes from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.extensions.serve import limits
from symbiont_ecology.extensions.serve.limits import ApiKeys, HttpGuard, add_key


def outcome(parts: list[dict[str, Any]]) -> int:
    """The size of a body in these parts that the server reads; or the status of its refusal. Behind
    the parts nothing comes."""

    async def receive() -> dict[str, Any]:
        if not parts:
            await asyncio.sleep(60)
        return parts.pop(0)

    async def read(scope: Any, receive: Any, send: Any) -> None:
        message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            sizes.append(len(message["body"]))

    sizes = list[int]()
    try:
        asyncio.run(HttpGuard(read)({"type": "http"}, receive, receive))  # type: ignore[arg-type]
    except HTTPException as error:
        return error.status_code
    return sum(sizes)


def piece(size: int, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([piece(40, more=True), piece(30, more=False)], 70),
        ([piece(60, more=True)] * 3, 413),
        ([piece(10, more=True)], 408),
    ],
)
def test_a_body_is_read_whole_or_refused(
    monkeypatch: pytest.MonkeyPatch, parts: list[dict[str, Any]], expected: int
) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 0.05)
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 100)
    assert outcome(list(parts)) == expected


@pytest.mark.parametrize("user", ["", "a" * 201, "two\nlines", "\ud800"])
def test_a_user_that_no_request_can_name_gets_no_key(tmp_path: Path, user: str) -> None:
    path = tmp_path / "keys.jsonl"
    key = add_key(path, "a" * 200)
    with pytest.raises(DataError, match="user: expected a line of 1 to 200"):
        add_key(path, user)
    assert len(ApiKeys.read(path).known) == 1
    assert key not in path.read_text()


@pytest.mark.parametrize(
    "text", ["", "no json\n", '{"user": "ada"}\n', '{"user": 3, "sha256": ""}\n']
)
def test_a_damaged_key_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=r"keys\.jsonl"):
        ApiKeys.read(path)
