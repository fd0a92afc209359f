"""Graders in data of one's own: lines name them and keep them, and say what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from asked import write_items
from graded import task
from lines import Row, jsonl
from symbiont_ecology.base.errors import DataError
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.evaluate.items import read_items
from symbiont_ecology.tasks import judge
from symbiont_ecology.tasks.data import DataTask

CHOICE = {"kind": "choice", "choices": ["A", "B", "7", "New York"]}


def judged(quiz: DataTask, replies: tuple[str, ...]) -> list[float]:
    """The verdicts on replies to the first line."""
    line = quiz.lines[0]
    asked = quiz.item(line.prompt, line.depth)
    assert [asked.verifier(reply) for reply in replies] == [
        quiz.verify(line.prompt, reply) for reply in replies
    ]
    return [judgement.verdict for judgement in judge((asked, reply) for reply in replies)]


@pytest.mark.parametrize(
    ("target", "answers", "right", "wrong"),
    [
        (["Paris", "City of Light"], ("Paris", "City of Light"), ("Paris",), ("London", "")),
        (7, ("7",), ("7", "Answer: 7"), ("8", "7.0", "")),
        (1.5, ("1.5",), ("1.5",), ("1", "15", "")),
        ([1, "one"], ("1", "one"), ("1", "one"), ("2", "[1, 'one']", "")),
        (["so\n#### 4", 4], ("4", "4"), ("4",), ("so", "####", "")),
        (1e30, ("1e+30",), ("1e+30",), ("1", "")),
        (0, ("0",), ("0",), ("", "1")),
        (41.0, ("41",), ("41",), ("41.0", "4", "")),  # pandas, of whole numbers with gaps
        ([-2.0, 0.5], ("-2", "0.5"), ("-2", "0.5"), ("2", "-2.5", "")),
    ],
)
def test_a_target_is_a_text_a_number_or_a_list_of_these(
    target: object,
    answers: tuple[str, ...],
    right: tuple[str, ...],
    wrong: tuple[str, ...],
    tmp_path: Path,
) -> None:
    quiz = task(jsonl(tmp_path / "q.jsonl", [{"prompt": "p", "target": target}]))
    assert quiz.lines[0].answers == answers
    assert quiz.answer("p") == answers[0]
    assert judged(quiz, right + wrong) == [1.0] * len(right) + [0.0] * len(wrong)
    row = {"prompt": "p", "target": target, "family": "f", "depth": "d"}
    (asked,) = read_items(jsonl(tmp_path / "holdout.jsonl", [row]))
    assert asked.answer == answers[0]
    judgements = judge((asked, reply) for reply in right + wrong)
    assert [one.verdict for one in judgements] == [1.0] * len(right) + [0.0] * len(wrong)
    write_items([asked], tmp_path / "again.jsonl")
    (again,) = read_items(tmp_path / "again.jsonl")
    assert again.verifier == asked.verifier


@pytest.mark.parametrize(
    ("grade", "target", "said"),
    [
        ("number", "seven", "the answer 'seven': raised ValueError: could not convert string"),
        ("number", ["7", "seven"], "the answer '7': raised ValueError"),
        ("number", "nan", "the answer 'nan': raised ValueError: expected a number"),
        ("number", "-inf", "the answer '-inf': raised ValueError: expected a number"),
        (CHOICE, "E", "the answer 'E': raised ValueError: expected one word of A, B, 7, New York"),
        (CHOICE, ["A", "yes"], "the answer 'A': raised ValueError: expected one word of A, B, 7"),
        (CHOICE, "New York", "the answer 'New York': raised ValueError: expected one word of"),
    ],
)
def test_an_answer_that_the_grader_cannot_use_is_refused_with_its_line(
    grade: Spec, target: object, said: str, tmp_path: Path
) -> None:
    good = {"prompt": "p", "target": "7", "family": "f", "depth": "d", "grade": grade}
    path = jsonl(tmp_path / "q.jsonl", [good, good | {"prompt": "q", "target": target}])
    with pytest.raises(DataError, match="line 2: the grader cannot use") as refused:
        task(path, grade=grade, prompt="prompt")
    assert said in str(refused.value)
    with pytest.raises(DataError, match="line 2: the grader cannot use") as refused:
        read_items(path)
    assert said in str(refused.value)


# Room for a reply.


@pytest.mark.parametrize(
    ("knobs", "answer", "limit"),
    [
        ({}, "4", 64),
        ({}, "x" * 63, 64),
        ({}, "x" * 64, 65),
        ({}, "é" * 64, 129),
        ({}, ["4", "x" * 99], 100),
        ({"reply_tokens": 300}, "4", 300),
        ({"reply_tokens": 8}, "4", 8),
    ],
)
def test_a_reply_may_be_as_long_as_the_setting_says_else_as_the_answers(
    knobs: dict[str, object], answer: object, limit: int, tmp_path: Path
) -> None:
    lines: list[Row] = [{"prompt": "p", "target": answer}, {"prompt": "q", "target": "4"}]
    quiz = task(
        jsonl(tmp_path / "q.jsonl", [*lines, {**lines[1], "prompt": "r", "depth": "far"}]), **knobs
    )
    assert quiz.reply_limit("short") == quiz.item("q", "short").reply_limit == limit
    assert quiz.reply_limit("far") == knobs.get("reply_tokens", 64)
