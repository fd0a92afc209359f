"""The log of a service."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest

from in_service import wait_until
from symbiont_ecology.extensions.serve import logs
from symbiont_ecology.extensions.serve.logs import BufferedLines, JsonLines


def record(what: str, **facts: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": what, "levelno": logging.INFO, "levelname": "INFO"})
    vars(made).update(facts)
    return made


def written(handler: BufferedLines, *records: logging.LogRecord) -> None:
    handler.setFormatter(JsonLines())
    for one in records:
        handler.handle(one)


def test_lines_are_written_soon_and_in_their_order() -> None:
    stream = io.StringIO()
    handler = BufferedLines(stream)
    written(handler, record("answered", id="a"), record("answered", id="b"))
    wait_until(stream.getvalue, 10)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["id"], line["level"]) for line in lines] == [
        ("answered", "a", "info"),
        ("answered", "b", "info"),
    ]
    handler.close()


def test_what_has_gathered_is_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_WRITES", 60)
    stream = io.StringIO()
    handler = BufferedLines(stream)
    written(handler, record("answered"))
    handler.close()
    assert json.loads(stream.getvalue())["event"] == "answered"


def test_a_stream_that_nobody_reads_ends_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    handler = BufferedLines(stream)
    written(handler, record("answered"))
    handler.flush()
    time.sleep(3 * logs.SECONDS_BETWEEN_WRITES)
    handler.close()
