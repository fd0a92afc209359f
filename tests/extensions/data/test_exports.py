"""Exports of other products go into a log as they are, without naming a column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from symbiont_ecology.base.types import turns
from symbiont_ecology.tasks.log_rows import LogRow
from symbiont_ecology.tasks.logs import LogTasks

ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "say a"}]
SAID = {"role": "assistant", "content": "a"}


def open_webui() -> list[dict[str, Any]]:
    """Feedback as the administrator's page exports it: the second of two replies was rated."""
    messages = {
        "m1": {"id": "m1", "parentId": None, "childrenIds": ["m2", "m3"], **ASKED[1]},
        "m2": {"id": "m2", "parentId": "m1", "role": "assistant", "content": "b"},
        "m3": {"id": "m3", "parentId": "m1", **SAID},
        "m4": {"id": "m4", "parentId": "m3", "role": "user", "content": "thanks"},
    }
    chat = {"id": "", "title": "t", "history": {"messages": messages, "currentId": "m4"}}
    return [
        {
            "id": f"f{place}",
            "user_id": "u1",
            "version": 0,
            "type": "rating",
            "data": {
                "rating": rating,
                "model_id": "x",
                "comment": "fine",
                "details": {"rating": 8},
            },
            "meta": {"arena": False, "chat_id": "c", "message_id": rated, "message_index": 2},
            "snapshot": {"chat": {"id": "c", "user_id": "u1", "chat": chat}},
            "created_at": 1700000000,
            "updated_at": 1700000001,
        }
        for place, (rated, rating) in enumerate([("m3", 1), ("m2", -1), ("gone", 1), ("m3", None)])
    ]


def langfuse() -> list[dict[str, Any]]:
    """Traces as the table's export writes them: scores are columns of lists."""
    trace = {
        "id": "t",
        "timestamp": "2026-01-02 03:04:05.678000",
        "name": "chat",
        "userId": "u1",
        "sessionId": None,
        "tags": [],
        "input": {"messages": ASKED},
        "output": SAID,
        "metadata": {"user_id": "else"},
    }
    return [
        {**trace, "user-feedback": [1]},
        {**trace, "user-feedback": [0]},
        {**trace, "user-feedback": None},
    ]


def test_feedback_of_open_webui(tmp_path: Path) -> None:
    table = _table(tmp_path / "feedback-history-export.json", open_webui())
    assert table.rows == (
        LogRow(1, "u1", "", "say a", "a", True, "", 8.0, "fine", 1700000001.0),
        LogRow(2, "u1", "", "say a", "b", False, "", 8.0, "fine", 1700000001.0),
    )
    assert table.aside == {"without a prompt": [3], "without a verdict": [4]}


def test_chats_of_open_webui(tmp_path: Path) -> None:
    """The older export: a verdict lies in the message, and a chat may have several."""
    (feedback, *_) = open_webui()
    chat = feedback["snapshot"]["chat"]["chat"]
    for name, rating in (("m2", -1), ("m3", 1)):
        chat["history"]["messages"][name]["annotation"] = {"rating": rating, "reason": "style"}
    table = _table(tmp_path / "chats.json", [{"id": "c", "user_id": "u1", "chat": chat}])
    assert [(row.reply, row.is_accepted, row.comment) for row in table.rows] == [
        ("b", False, "style"),
        ("a", True, "style"),
    ]


ONE_ROW: dict[str, dict[str, Any]] = {
    "dify": {
        "feedback_id": "f",
        "app_name": "x",
        "user_query": "say a",
        "ai_response": "a",
        "feedback_rating": "👍",
        "feedback_rating_raw": "like",
        "feedback_comment": "fine",
        "feedback_date": "2026-01-02 03:04:05",
        "from_account_name": "",
        "from_end_user_id": "u1",
    },
    "anything-llm": {
        "id": 1,
        "username": "u1",
        "workspace": "w",
        "prompt": "say a",
        "response": "a",
        "sent_at": "2026-01-02T03:04:05Z",
        "rating": "GOOD",
    },
    "gradio": {
        "user": "u1",
        "user_input": "say a",
        "bot_response": {"type": "text", "value": "a", "id": "x"},
        "liked": True,
    },
    "swift": {
        "user": "u1",
        "messages": [{"role": "user", "content": "say a"}, SAID],
        "label": "true",
    },
    "langsmith": {
        "user": "u1",
        "inputs": {"question": "say a"},
        "outputs": {"answer": "a"},
        "user_score": 1,
        "feedback": "POSITIVE",
    },
    "openai": {
        "user": "u1",
        "input": [ASKED[1]],
        "output": {"choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}]},
        "score": 1,
    },
    "quoted": {"userId": "u1", "input": json.dumps("say a"), "output": json.dumps("a"), "score": 1},
}
"""One accepted reply, as others write it."""


@pytest.mark.parametrize("source", ONE_ROW)
def test_one_row_of_many_products(source: str, tmp_path: Path) -> None:
    table = _table(tmp_path / "log.json", [ONE_ROW[source]])
    (row,) = table.rows
    assert (row.user, row.prompt, row.reply, row.is_accepted) == ("u1", "say a", "a", True)


def test_a_row_that_nobody_rated_is_no_verdict(tmp_path: Path) -> None:
    row = ONE_ROW["anything-llm"]
    table = _table(tmp_path / "log.json", [row, {**row, "rating": "--"}, {**row, "rating": "BAD"}])
    assert [one.is_accepted for one in table.rows] == [True, False]
    assert table.aside == {"without a verdict": [2]}


@pytest.mark.parametrize("form", ["json", "csv", "api"])
def test_traces_of_langfuse(form: str, tmp_path: Path) -> None:
    rows = langfuse()
    if form == "csv":
        import pandas as pd

        cells = [
            {
                name: json.dumps(cell) if isinstance(cell, dict | list) else cell
                for name, cell in row.items()
            }
            for row in rows
        ]
        pd.DataFrame(cells).to_csv(tmp_path / "traces.csv", index=False)
        table = LogTasks("log", str(tmp_path / "traces.csv")).table()
    else:
        if form == "api":
            for row in rows:
                score = {"name": "user-feedback", "dataType": "BOOLEAN", "comment": "too short"}
                values = row.pop("user-feedback") or []
                row["scores"] = [{**score, "value": value} for value in values]
        table = _table(tmp_path / "traces.json", rows)
    assert [(row.user, turns(row.prompt), row.reply, row.is_accepted) for row in table.rows] == [
        ("u1", ["Be kind.", "say a"], "a", True),
        ("u1", ["Be kind.", "say a"], "a", False),
    ]
    assert table.columns["user"] == "userId"
    assert table.rows[0].time > 0
    assert table.aside == {"without a verdict": [4 if form == "csv" else 3]}


@pytest.mark.parametrize("code", [0, None])
def test_a_score_in_words_is_its_word_whatever_its_code(code: int | None, tmp_path: Path) -> None:
    (row, *_) = langfuse()
    del row["user-feedback"]
    good, bad = (
        {**row, "scores": [{"name": "user-feedback", "value": number, "stringValue": word}]}
        for number, word in ((code, "good"), (1, "bad"))
    )
    table = _table(tmp_path / "traces.json", [good, bad])
    assert [one.is_accepted for one in table.rows] == [True, False]


def test_inferences_of_tensorzero(tmp_path: Path) -> None:
    block = {"type": "text", "text": "a"}
    row = {
        "id": "i",
        "function_name": "chat",
        "tags": {"user_id": "u1"},
        "input": {
            "system": "Be kind.",
            "messages": [{"role": "user", "content": [{"type": "text", "value": "say a"}]}],
        },
        "output": [block],
        "value": True,
        "demonstration": json.dumps([{**block, "text": "b"}]),
        "timestamp": "2026-01-02T03:04:05Z",
    }
    table = _table(tmp_path / "inferences.jsonl", [row])
    (read,) = table.rows
    assert (read.user, turns(read.prompt), read.reply) == ("u1", ["Be kind.", "say a"], "a")
    assert (read.is_accepted, read.correction) == (True, "b")


def _table(path: Path, rows: list[dict[str, Any]]) -> Any:
    lines = "\n".join(map(json.dumps, rows)) if path.suffix == ".jsonl" else json.dumps(rows)
    path.write_text(lines)
    return LogTasks("log", str(path)).table()
