"""Rows of a log from anywhere: what is read, what is set aside, and what is told of a mistake."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lines import jsonl
from logs import log_config, rows_of, town
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.types import messages, turns
from symbiont_ecology.run.build import mixture
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.log_rows import (
    NO,
    YES,
    LogRow,
    LogTable,
    Verdicts,
    as_lines,
    seconds_of,
    turns_in,
)
from symbiont_ecology.tasks.logs import MAX_REPLY_TOKENS, LoggedUsers, LogTask, LogTasks, held_out
from symbiont_ecology.tasks.tables import named

ROW = {"user": "ann", "prompt": "say a", "reply": "a", "accepted": True}
BIG = 987654321012345601


def log_of(folder: Path, *lines: dict[str, Any], **knobs: Any) -> LogTasks:
    return LogTasks("log", str(jsonl(folder / "log.jsonl", list(lines))), **knobs)


def read(folder: Path, *lines: dict[str, Any], **knobs: Any) -> LogTable:
    return log_of(folder, *lines, **knobs).table()


# Verdicts


def test_verdicts_come_in_many_words() -> None:
    usual = Verdicts()
    dressed = "TRUE", "Accepted", "thumbs_up", "Thumbs Up", "👍🏽", ":+1:", "1.00", 1, 1.0, True
    for value in (*YES, *dressed, [1], "[1]", '["up"]'):
        assert usual.read(value) is True, value
    refused = "FALSE", "thumbs-down", "👎🏿", ":-1:", "-1.0", "0.0", 0, -1, False, [0.0]
    for value in (*NO, *refused):
        assert usual.read(value) is False, value
    assert [Verdicts(accepted_from=4).read(value) for value in ("4,5", "3,5")] == [True, False]
    assert usual.read("1,0") is True
    for value in (None, float("nan"), "", "null", "N/A", "None"):
        assert usual.read(value) is None, value


@pytest.mark.parametrize("value", ["perhaps", 0.5, 4, "7"])
def test_what_may_mean_anything_is_refused_and_the_options_named(value: object) -> None:
    with pytest.raises(ValueError, match=r"--accepted-as up,ja, or the least, --accepted-from 4"):
        Verdicts().read(value)


def test_stars_and_words_of_ones_own_are_verdicts() -> None:
    stars = Verdicts(accepted_from=4)
    assert [stars.read(value) for value in (5, "4.0", 3.9, "1", None)] == [
        True,
        True,
        False,
        False,
        None,
    ]
    with pytest.raises(ValueError, match="a number"):
        stars.read("good")
    words = Verdicts(accepted_as=("Ja", "thumbs up"))
    assert [words.read(value) for value in ("ja", "thumbs_up", "nein", "")] == [
        True,
        True,
        False,
        None,
    ]


def test_verdicts_of_three_kinds_are_refused_unless_their_least_is_told(tmp_path: Path) -> None:
    verdicts = [{**ROW, "accepted": value} for value in (1, 0, -1)]
    with pytest.raises(DataError, match=r"line 3: .* got 0 and -1"):
        read(tmp_path, *verdicts)
    table = read(tmp_path, *verdicts, accepted_from=1)
    assert [row.is_accepted for row in table.rows] == [True, False, False]


def test_verdicts_of_one_kind_and_of_both_are_told(tmp_path: Path) -> None:
    assert read(tmp_path, ROW, ROW).told == ["all replies were accepted"]
    (told,) = read(tmp_path, ROW, {**ROW, "accepted": False}).told
    assert told.startswith("1 replies were accepted and refused by the same user, such as 'a'")


# Users


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Jean\xa0Luc", "Jean Luc"),
        ("علی\u200cرضا", "علی\u200cرضا"),
        (BIG, str(BIG)),
        (7.0, "7"),
        ("7.0", "7"),
        ("12e45", "12e45"),
    ],
)
def test_users_have_one_normal_form(written: object, name: str, tmp_path: Path) -> None:
    (row,) = read(tmp_path, {**ROW, "user": written}).rows
    assert row.user == name


def test_users_may_be_numbers_and_ids_of_databases() -> None:
    assert [named(cell) for cell in (Decimal(BIG), Decimal("7.00"), UUID(int=7), 2**60 + 1)] == [
        *(str(BIG), "7", "00000000-0000-0000-0000-000000000007", str(2**60 + 1))
    ]


@pytest.mark.parametrize("written", [float(BIG), 9e17, "9.87654321012346E+17", f"{BIG}.0"])
def test_users_that_a_float_may_have_merged_are_refused(written: object, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"line 1: user, column 'user': .* has lost digits, so users could be mixed"
    ):
        read(tmp_path, {**ROW, "user": written})


@pytest.mark.parametrize(
    "name", ["a\tb", "a\nb", "\x1b[31mred", "a\u2028b", "a\u202eb", "x" * 201, True]
)
def test_what_nobody_can_be_called_is_refused(name: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: user, .*expected a line of"):
        read(tmp_path, {**ROW, "user": name})


# Columns


def test_columns_are_found_by_their_usual_names(tmp_path: Path) -> None:
    line = {"User ID": 7, "question": "say a", "answer": "a", "thumb": "up", "ts": 1763800023}
    table = read(tmp_path, line)
    (row,) = table.rows
    assert (row.user, row.prompt, row.reply, row.is_accepted, row.time) == (
        *("7", "say a", "a", True),
        1763800023,
    )
    assert table.columns == {
        "user": "User ID",
        "prompt": "question",
        "reply": "answer",
        "accepted": "thumb",
        "time": "ts",
    }


def test_columns_may_be_named_and_lie_within_cells(tmp_path: Path) -> None:
    line = {"who": {"id": 7}, "question": "say a", "out": {"text": "a", "n": 3}, "thumb": "up"}
    columns = {"user": "who.id", "reply": "out.text"}
    (row,) = read(tmp_path, line, columns=columns).rows
    assert (row.user, row.reply) == ("7", "a")
    inside = {**line, "out": json.dumps(line["out"])}  # as CSV has it
    (row,) = read(tmp_path, inside, columns=columns).rows
    assert row.reply == "a"


def test_a_column_of_words_is_no_column_of_verdicts(tmp_path: Path) -> None:
    line = {"user": "ann", "prompt": "say a", "reply": "a", "feedback": "too long", "rating": 1}
    table = read(tmp_path, line)
    assert table.columns["accepted"] == "rating"


@pytest.mark.parametrize("role", ["user", "prompt", "reply", "accepted"])
def test_a_missing_column_names_its_option(role: str, tmp_path: Path) -> None:
    line = {name: cell for name, cell in ROW.items() if name != role}
    with pytest.raises(
        DataError, match=f"no column '{role}'; it has .*: name yours, --{role} COLUMN"
    ):
        read(tmp_path, {**line, "x": 1})
    with pytest.raises(DataError, match="no column 'who'"):
        read(tmp_path, ROW, columns={role: "who"})


def test_all_that_users_say_is_kept(tmp_path: Path) -> None:
    said = {"correction": "b", "score": 3, "comment": "too short", "time": "2026-01-02T03:04:05Z"}
    (row,) = read(tmp_path, {**ROW, **said}).rows
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    assert (row.correction, row.score, row.comment, row.time) == ("b", 3.0, "too short", moment)


@pytest.mark.parametrize(
    "moment",
    [
        *(1700000000, 1700000000.0, "1700000000", 1700000000000, 1700000000000000000),
        *("2023-11-14T22:13:20Z", "2023-11-14 22:13:20.000000", "2023-11-14 22:13:20 UTC"),
        datetime(2023, 11, 14, 22, 13, 20),
    ],
)
def test_moments_come_in_many_forms(moment: object) -> None:
    assert seconds_of(moment) == 1700000000


def test_rows_are_learned_in_the_order_of_time(tmp_path: Path) -> None:
    lines = [{**ROW, "prompt": f"say {n}", "time": 1700000000 - n} for n in (0, 2, 3, 4)]
    users = mixture(log_config(Path(log_of(tmp_path, *lines).path))).users
    assert isinstance(users, LoggedUsers)
    prompts = [item.question.partition("\t")[2] for item in users.rows]
    kept = [item.question.partition("\t")[2] for item in users.held_out]
    assert [one for one in (f"say {n}" for n in (4, 3, 2, 0)) if one not in kept] == prompts


# Texts


def test_conversations_are_turns_and_bring_their_reply(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "say a"}]
    said = {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    cases: list[dict[str, Any]] = [
        {"prompt": asked, "reply": [said]},  # as in TRL
        {"prompt": asked, "reply": said},
        {"prompt": json.dumps(asked), "reply": json.dumps(said)},  # as in CSV
        {"prompt": {"messages": asked}, "reply": said["content"]},
        {"prompt": {"system": "Be kind.", "messages": asked[1:]}, "reply": "a"},  # TensorZero
        {"messages": [*asked, said]},
    ]
    for texts in cases:
        (row,) = read(tmp_path, {"user": "ann", "accepted": True, **texts}).rows
        assert (turns(row.prompt), row.reply) == (["Be kind.", "say a"], "a"), texts
    (row,) = read(tmp_path, {**ROW, "prompt": {"question": "say a"}, "reply": 3}).rows
    assert (row.prompt, row.reply) == ("say a", "3")


def test_messages_that_python_wrote_are_named_also_where_they_bring_the_reply(
    tmp_path: Path,
) -> None:
    talk = str([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    with pytest.raises(DataError, match="messages as Python shows them"):
        read(tmp_path, {"user": "ann", "messages": talk, "accepted": True})


def test_json_that_is_no_conversation_is_a_text(tmp_path: Path) -> None:
    (row,) = read(tmp_path, {**ROW, "prompt": '{"a": 1', "reply": '{"a": 1}'}).rows
    assert (row.prompt, row.reply) == ('{"a": 1', '{"a": 1}')


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=6
    )
)
def test_turns_survive_being_written_as_messages(said: list[str]) -> None:
    said[-1] = f"{said[-1]}?"
    said = [text if place % 2 == len(said) % 2 else f"x{text}" for place, text in enumerate(said)]
    prompt = "\x1d".join(said)
    assert turns_in(messages(prompt)) == (said, "")


def test_a_pair_is_an_accepted_and_a_refused_reply(tmp_path: Path) -> None:
    pair = {"user": "ann", "prompt": "say a", "chosen": "a", "rejected": "b"}
    talk = {
        name: [{"role": "user", "content": "say a"}, {"role": "assistant", "content": reply}]
        for name, reply in (("chosen", "a"), ("rejected", "b"))
    }
    for line in (pair, {"user": "ann", **talk}):
        rows = read(tmp_path, line).rows
        assert [(row.prompt, row.reply, row.is_accepted) for row in rows] == [
            ("say a", "a", True),
            ("say a", "b", False),
        ]


# Rows that lack something, and mistakes


def test_a_row_that_lacks_something_is_set_aside_and_counted(tmp_path: Path) -> None:
    lacking: list[dict[str, Any]] = [
        {"accepted": None},
        {"accepted": float("nan")},
        {"user": None},
        {"user": "nan"},
        {"prompt": " "},
        {"reply": None},
        {"reply": " "},
        {"prompt": "a" * 1_000_001},
    ]
    table = read(tmp_path, *({**ROW, **change} for change in lacking), ROW)
    assert [row.place for row in table.rows] == [9]
    assert table.aside == {
        "without a verdict": [1, 2],
        "without a user": [3, 4],
        "without a prompt": [5],
        "without a reply": [6, 7],
        "with more than 1000000 characters": [8],
    }
    with pytest.raises(DataError, match="no row with user, prompt, reply and verdict: 1 without a"):
        read(tmp_path, {**ROW, "user": None})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accepted": "perhaps"}, r"line 1: .*expected verdicts of two kinds.* got 'perhaps'"),
        ({"reply": "\ud800"}, r"line 1: .*expected whole characters"),
        ({"prompt": "a\x1db"}, r"line 1: .*expected no U\+001D"),
        ({"prompt": True}, r"line 1: .*expected text, got True"),
        ({"reply": {"a": "x", "b": "y"}}, r"line 1: .*expected one text, got an object with a, b"),
        ({"prompt": "[{'role': 'user', 'content': 'a'}]"}, r"line 1: .*messages as Python shows"),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image_url"}]}]},
            r"a part of type text",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, {**ROW, **change})


def test_any_cells_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    cells = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=6,
    )

    @given(
        st.dictionaries(st.sampled_from([*ROW, "messages", "chosen", "scores"]), cells, max_size=5)
    )
    def check(row: dict[str, Any]) -> None:
        try:
            table = read(tmp_path, ROW, row)
        except DataError:
            return
        assert len(table.rows) + sum(map(len, table.aside.values())) in (2, 3)
        assert all(unicodedata.is_normalized("NFC", one.user) for one in table.rows)

    check()


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
ROWS_READ = st.builds(
    LogRow,
    place=st.just(1),
    user=st.just("ann"),
    family=st.sampled_from(["", "sums"]),
    prompt=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4).map("\x1d".join),
    reply=TEXTS.map(str.strip).filter(bool)
    | st.sampled_from(['"a"', '{"role": "user", "content": ""}']),
    is_accepted=st.booleans(),
    correction=st.sampled_from(["", "b"]),
    score=st.none() | st.integers(0, 5).map(float),
    comment=st.sampled_from(["", "fine"]),
    time=st.sampled_from([0.0, 1700000000.5]),
)


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    @given(ROWS_READ)
    def check(row: LogRow) -> None:
        path = tmp_path / "log.jsonl"
        path.write_text(as_lines([row]), encoding="utf-8")
        assert LogTasks("log", str(path)).table().rows == (row,)

    check()


# The task


@pytest.mark.parametrize(
    ("topic", "family"),
    [("sums", "sums"), (3.0, "3"), (2.5, "2.5"), (None, ""), (float("nan"), "")],
)
def test_a_family_is_a_word_or_a_number_and_else_none(
    topic: object, family: str, tmp_path: Path
) -> None:
    (row,) = read(tmp_path, {**ROW, "family": topic}).rows
    assert row.family == family


def test_a_log_of_refusals_has_nothing_to_teach(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="accepted, got none to learn"):
        log_of(tmp_path, {**ROW, "accepted": False}).task()
    rows = (replace(LogRow(1, "ann", "", f"say {n}", "a", True)) for n in range(100))
    prompt = next(row.prompt for row in rows if held_out([row]))
    with pytest.raises(DataError, match="one row in 5 is held out: add rows"):
        log_of(tmp_path, {**ROW, "prompt": prompt}).task()


def test_accepted_replies_are_the_answers_of_a_user_alone(tmp_path: Path) -> None:
    source = log_of(
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


def test_a_host_without_chat_template_reads_turns_as_lines(tmp_path: Path) -> None:
    asked = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]
    asked[-1]["content"] = "say a"
    task = log_of(tmp_path, {**ROW, "prompt": asked}).task()
    (row,) = task.log
    assert turns(task.item(row.question, "short").prompt) == [
        *("system\n", "user\n", "assistant\n", "say a")
    ]


def test_a_new_reply_may_be_as_long_as_those_that_were_accepted(tmp_path: Path) -> None:
    long, longer = {**ROW, "reply": 99 * "a"}, {**ROW, "user": "bob", "reply": 999 * "a"}
    task = log_of(tmp_path, {**ROW, "prompt": "say b"}, long, longer).task()
    limits = [task.item(row.question, "short").reply_limit for row in task.log]
    assert limits == [64, 100, MAX_REPLY_TOKENS]


def test_the_newest_fifth_of_each_user_is_held_out_where_all_rows_have_a_time() -> None:
    rows = [
        LogRow(place, user, "", f"say {place}", "a", place % 2 == 0, time=1e9 + place)
        for place, user in enumerate("abbaabbbbbab" * 2)
    ]
    kept = held_out(rows)
    for user in "ab":
        own = [row for row in rows if row.user == user]
        newest = own[len(own) - len(own) // 5 :]
        assert [row for row in own if row.question in kept] == newest
    again = replace(rows[-1], place=0, prompt=rows[0].prompt)
    assert rows[0].question not in kept
    assert again.question in held_out([*rows, again, *[replace(again, time=3e9)] * 8])


def test_one_prompt_in_five_is_held_out_for_everybody_where_time_is_not_known(
    tmp_path: Path,
) -> None:
    path = jsonl(tmp_path / "log.jsonl", rows_of(town(), 60))
    task = task_sources.build({"kind": "log", "name": "log", "path": str(path)}).task()
    assert isinstance(task, LogTask)
    learned = [row.prompt for row in task.log if row.question not in task.held_out]
    assert 0.1 < 1 - len(learned) / len(task.log) < 0.3
    kept = {line.prompt for line in task.part("short", "holdout")}
    assert kept.isdisjoint(learned)


def test_users_in_floats_of_32_bits_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for numbers, is_refused in (([7.0, 8.0], False), ([123456789.0, 123456790.0], True)):
        columns = {name: [cell] * 2 for name, cell in ROW.items()}
        columns["user"] = pyarrow.array(numbers, pyarrow.float32())
        parquet.write_table(pyarrow.table(columns), tmp_path / "log.parquet")
        source = LogTasks("log", str(tmp_path / "log.parquet"))
        if is_refused:
            with pytest.raises(DataError, match="has lost digits"):
                source.table()
        else:
            assert {row.user for row in source.rows()} == {"7", "8"}


def test_parquet_says_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lines = rows_of(town(), 4)
    parquet.write_table(pyarrow.Table.from_pylist(lines), tmp_path / "log.parquet")
    written = LogTasks("log", str(tmp_path / "log.parquet")).rows()
    assert written == LogTasks("log", str(jsonl(tmp_path / "log.jsonl", lines))).rows()
