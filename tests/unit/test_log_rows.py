"""The schema of a log: what is understood, and what is said of a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lines import jsonl
from logs import rows_of, town
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.logs import MAX_REPLY_TOKENS, LogTask, LogTasks, is_held_out

ROW = {"user": "ann", "prompt": "say a", "reply": "a", "accepted": True}


HOSTILE = (
    "a\tb",
    "a\nb",
    "\x1b[31mred",
    "a\rb",
    "a\u2028b",
    "a\u202eb",
    "",
    " ",
    1.5,
    9e17,
    "x" * 201,
)
"""What nobody may be called."""


def rows(path: Path, *lines: dict[str, Any], **columns: str) -> LogTasks:
    return LogTasks("log", str(jsonl(path / "log.jsonl", list(lines))), columns)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        *((value, True) for value in (True, 1, 1.0, "yes", "TRUE", "up", "Accepted", "1", "t")),
        *(
            (value, False)
            for value in (False, 0, 0.0, "no", "False", "down", "refused", "0", -1, "f")
        ),
    ],
)
def test_verdicts_come_in_many_words(value: object, verdict: bool, tmp_path: Path) -> None:
    (row,) = rows(tmp_path, {**ROW, "accepted": value}).rows()
    assert row.is_accepted is verdict


def test_verdicts_of_three_kinds_are_refused(tmp_path: Path) -> None:
    verdicts = [{**ROW, "accepted": value} for value in (1, 0, -1)]
    with pytest.raises(DataError, match="line 3: expected verdicts of two kinds"):
        rows(tmp_path, *verdicts).rows()


@pytest.mark.parametrize(
    "name", ["Jean\xa0Luc", "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627", 2**60 + 1]
)
def test_a_name_is_kept_as_it_is(name: object, tmp_path: Path) -> None:
    (row,) = rows(tmp_path, {**ROW, "user": name}).rows()
    assert row.user == str(name)


def test_a_conversation_of_one_message_is_its_text(tmp_path: Path) -> None:
    texts = {"prompt": "say a", "reply": "a"}
    talk = {key: [{"role": "user", "content": text}] for key, text in texts.items()}
    (row,) = rows(tmp_path, {**ROW, **talk}).rows()
    assert (row.prompt, row.reply) == ("say a", "a")
    with pytest.raises(DataError, match="expected text under 'prompt'"):
        rows(tmp_path, {**ROW, "prompt": talk["prompt"] * 2}).rows()


def test_a_row_without_a_verdict_or_a_reply_is_left_out(tmp_path: Path) -> None:
    empty = [{**ROW, "accepted": value} for value in (None, float("nan"))]
    silent = [{**ROW, "reply": " ", "accepted": value} for value in (True, False)]
    read = rows(tmp_path, *empty, *silent, ROW, {**ROW, "accepted": False}).rows()
    assert [(row.place, row.is_accepted) for row in read] == [(5, True), (6, False)]


def test_columns_may_have_other_names_and_users_may_be_numbers(tmp_path: Path) -> None:
    line = {"user": 7.0, "question": "say a", "text": "a", "thumb": "up", "about": 3}
    columns = {
        "user": "user", "prompt": "question", "reply": "text", "accepted": "thumb",
        "family": "about",
    }  # fmt: skip
    (row,) = rows(tmp_path, line, **columns).rows()
    assert (row.user, row.prompt, row.reply, row.family) == ("7", "say a", "a", "3")


@pytest.mark.parametrize(
    ("topic", "family"),
    [("sums", "sums"), (3.0, "3"), (2.5, "2.5"), (None, ""), (float("nan"), "")],
)
def test_a_family_is_a_word_or_a_number_and_else_none(
    topic: object, family: str, tmp_path: Path
) -> None:
    (row,) = rows(tmp_path, {**ROW, "family": topic}).rows()
    assert row.family == family


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accepted": "perhaps"}, r"line 1: expected verdicts of two kinds.* got 'perhaps'"),
        ({"accepted": 0.5}, r"line 1: expected verdicts of two kinds"),
        ({"reply": None}, r"line 1: expected text under 'reply', got None"),
        ({"prompt": ""}, r"line 1: expected text under 'prompt', got ''"),
        ({"prompt": 3}, r"line 1: expected text under 'prompt', got 3"),
        ({"user": None}, r"line 1: expected who asks, .* under 'user', got None"),
        *(({"user": name}, r"line 1: expected who asks") for name in HOSTILE),
        ({"user": True}, r"line 1: expected who asks"),
        ({"reply": "\ud800"}, r"line 1: half a character"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        rows(tmp_path, {**ROW, **change}).rows()


def test_a_log_of_refusals_has_nothing_to_teach(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="accepted, got none to learn"):
        rows(tmp_path, {**ROW, "accepted": False}).task()
    prompt = next(f"say {n}" for n in range(100) if is_held_out(f"say {n}"))
    with pytest.raises(DataError, match="one prompt in 10 is held out: add rows"):
        rows(tmp_path, {**ROW, "prompt": prompt}).task()


def test_accepted_replies_are_the_answers_of_a_user_alone(tmp_path: Path) -> None:
    source = rows(
        tmp_path,
        ROW,
        {**ROW, "reply": "A"},
        {**ROW, "user": "bob", "reply": "(a)"},
        {**ROW, "user": "bob", "reply": "a", "accepted": False},
    )
    task = source.task()
    assert task.users == ["ann", "bob"]
    items = [task.item(row.question, "short") for row in task.log]
    for item, right in zip(items, (("a", "A"), ("a", "A"), ("(a)",), ("(a)",)), strict=True):
        assert item.prompt == "say a"
        assert all(item.verifier(reply) for reply in right)
        assert not item.verifier("b")


def test_a_new_reply_may_be_as_long_as_those_that_were_accepted(tmp_path: Path) -> None:
    long, longer = {**ROW, "reply": 99 * "a"}, {**ROW, "user": "bob", "reply": 999 * "a"}
    task = rows(tmp_path, {**ROW, "prompt": "say b"}, long, longer).task()
    limits = [task.item(row.question, "short").reply_limit for row in task.log]
    assert limits == [64, 100, MAX_REPLY_TOKENS]


def test_one_prompt_in_ten_is_held_out_for_everybody(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "log.jsonl", rows_of(town(), 60))
    task = task_sources.build({"kind": "log", "name": "log", "path": str(path)}).task()
    assert isinstance(task, LogTask)
    learned = [row.prompt for row in task.log if not is_held_out(row.prompt)]
    assert 0.05 < 1 - len(learned) / len(task.log) < 0.15
    kept = {line.prompt for line in task.part("short", "holdout")}
    assert kept.isdisjoint(learned)


def test_parquet_says_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines = rows_of(town(), 4)
    parquet.write_table(pyarrow.Table.from_pylist(lines), tmp_path / "log.parquet")
    written = LogTasks("log", str(tmp_path / "log.parquet")).rows()
    assert written == LogTasks("log", str(jsonl(tmp_path / "log.jsonl", lines))).rows()
