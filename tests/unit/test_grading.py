"""Graders: what is right by each of them, what is wrong, and that no grader can stop a run."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lines import Row, jsonl, rows
from symbiont_ecology.errors import ConfigError, DataError, EcologyWarning
from symbiont_ecology.evaluation.items import read_items, write_items
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks import Judgement, judge, task_sources, verification
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.grading import (
    LONGEST_REPLY,
    Grader,
    ReferenceVerifier,
    final_answer,
    graders,
    normalised,
)
from symbiont_ecology.types import Item

EMPTY = ("", " ", "\n\n", "```\n```", "Answer:")
"""Replies that say nothing: every grader refuses them."""

CASES: tuple[tuple[Spec, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "exact",
        "Paris",
        ("Paris", " Paris\n", "The answer is Paris.", "`Paris`", "Hm.\nParis", "```\nParis\n```"),
        ("paris", "Paris, France", "London", "Paris\nLondon", "Paris London", "Pari"),
    ),
    ("exact", "two\nlines", ("two\nlines", " two\nlines \n"), ("lines", "two", "two lines")),
    (
        "normalised",
        "The Beatles",
        ("The Beatles", "beatles", "Answer: the  BEATLES!", "So, the answer is: The Beatles."),
        ("Beetles", "the beatles and the stones", "Beat les", "the"),
    ),
    (
        "contains",
        "new york",
        ("New York", "I think that it is New York, on the coast.", "London?\nNo: New York!"),
        ("York New", "new", "Newark", "renew Yorkshire", "new yorker"),
    ),
    (
        "stated",
        "Paris",
        ("Paris", "paris.", "It is Paris.", "The capital is **Paris**!", "Sure! The city: Paris"),
        ("London", "Paris or London", "It is Paris. It is London.", "London\nParis", "Paris is"),
    ),
    ("stated", "The Beatles", ("Those are the Beatles.", "beatles"), ("the", "The Stones")),
    (
        "number",
        "72",
        ("72", "72.0", "It is 36 + 36 = 72 apples.", "first 70, then 72", "7.2e1", "+72", "72."),
        ("73", "72 or 73", "-72", "seventy-two", "7 2", "720", "0.72"),
    ),
    ("number", "1,005", ("1005", "1,005", "That makes 1,005 in all."), ("1", "005", "1.005")),
    ("number", "-0.5", ("-0.5", "x = -.5", "-5e-1"), ("0.5", "-5", "- 0.5")),
    ("number", "0", ("0", "-0", "0.0"), ("1", "none", "1e-3")),
    (
        {"kind": "number", "tolerance": 0.01},
        "3.1416",
        ("3.14", "3.15", "about 3.1416"),
        ("3.2", "-3.14", "3"),
    ),
    (
        "regex",
        r"\d{3}-\d{4}",
        ("555-1234", "Answer: 555-1234.", "`555-1234`"),
        ("call 555-1234 now", "555 1234", "555-12345"),
    ),
    ("regex", "(?i)yes.*", ("yes", "YES", "Yes, it is\nso"), ("oh yes", "no")),
    (
        "choice",
        "B",
        ("B", "(B)", "B.", "Answer: B", "The answer is B.", "Hm, A?\nB", "`B`", "B) Berlin"),
        ("A", "b", "A or B", "Berlin", "B\nno, C", "AB"),
    ),
    (
        "choice",
        "A",
        ("A", "(A)", "A. a cat", "Answer: A", "A is right", "I think it is A.", "It is A, a cat"),
        ("a", "a cat", "A cat sat there", "Banana", "A or B", "Answer: a cat", "An apple", ""),
    ),
    (
        {"kind": "choice", "choices": ["H", "I", "J"]},
        "I",
        ("I", "(I)", "I is right"),
        ("I think so", "I'm sure", "I say J", "J"),
    ),
    (
        {"kind": "choice", "choices": ["yes", "no"]},
        "no",
        ("no", "no!", "Answer: no", "I say no"),
        ("yes", "yes and no", "No", "none", "B"),
    ),
)
one_case = pytest.mark.parametrize(
    ("spec", "answer", "right", "wrong"),
    CASES,
    ids=[
        f"{spec if isinstance(spec, str) else spec['kind']}: {answer!r}"
        for spec, answer, *_ in CASES
    ],
)


def item(grader: Grader, *answers: str) -> Item:
    """An item that is judged by a grader."""
    return Item(
        id="x",
        family="f",
        depth="d",
        question="q",
        prompt="q",
        reply_limit=64,
        verifier=ReferenceVerifier(grader, answers),
        answer=answers[0],
    )


def verdicts(grader: Grader, answer: str, replies: tuple[str, ...]) -> dict[str, float]:
    """What the boundary around verifiers says of each reply; a fault fails the test."""
    judgements = judge((item(grader, answer), reply) for reply in replies)
    assert not [judgement.fault for judgement in judgements if judgement.fault]
    return {reply: one.verdict for reply, one in zip(replies, judgements, strict=True)}


# Each grader.


def test_every_grader_has_a_case() -> None:
    kinds = {spec if isinstance(spec, str) else str(spec["kind"]) for spec, *_ in CASES}
    assert kinds == set(graders.names())


@one_case
def test_a_right_reply_is_right_a_wrong_one_wrong_and_an_empty_one_wrong(
    spec: Spec, answer: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    grader = graders.build(spec)
    assert verdicts(grader, answer, right) == dict.fromkeys(right, 1.0)
    assert verdicts(grader, answer, wrong) == dict.fromkeys(wrong, 0.0)
    assert verdicts(grader, answer, EMPTY) == dict.fromkeys(EMPTY, 0.0)


@pytest.mark.parametrize("kind", ["exact", "normalised", "contains", "stated"])
@pytest.mark.parametrize("answer", ["", " ", "The", "?!"])
def test_an_answer_that_says_nothing_makes_no_empty_reply_right(kind: str, answer: str) -> None:
    assert verdicts(graders.build(kind), answer, EMPTY) == dict.fromkeys(EMPTY, 0.0)


@given(st.text(), st.text(min_size=1).filter(str.strip))
def test_a_laxer_grader_accepts_what_a_stricter_one_does(reply: str, answer: str) -> None:
    if graders.build("exact")(answer, answer) and normalised(answer):
        assert graders.build("normalised")(answer, answer)
    if graders.build("normalised")(reply, answer) and len(reply) < LONGEST_REPLY:
        assert graders.build("contains")(reply, answer)


@given(st.text())
def test_the_final_answer_is_stable_and_of_the_reply(reply: str) -> None:
    assert final_answer(reply) in reply
    assert final_answer(f"{reply}\n\n \n") == final_answer(reply)


@pytest.mark.parametrize("kind", ["exact", "normalised", "contains", "number", "choice"])
@pytest.mark.parametrize(
    "reply", ["a" * 300_000, "1," * 150_000, "1" * 300_000, "`" * 300_000, "the " * 75_000]
)
def test_a_long_reply_is_judged_at_once(kind: str, reply: str) -> None:
    began = time.process_time()
    assert verdicts(graders.build(kind), "7" if kind == "number" else "B", (reply,)) == {reply: 0.0}
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("exat", "no grader 'exat'; did you mean 'exact'?"),
        ({"kind": "number", "tolerance": -1}, "tolerance: expected greater than or equal to 0"),
        ({"kind": "choice", "choices": "AB"}, "choices: expected a valid array, got 'AB'"),
        ({"kind": "exact", "case": False}, "unknown key 'case'"),
    ],
)
def test_a_wrong_grader_is_one_clear_line(spec: Spec, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        task(jsonl(tmp_path / "q.jsonl", rows(9)), grade=spec)


# Several answers.


def test_any_of_several_answers_is_right() -> None:
    several = item(graders.build("exact"), "Paris", "City of Light")
    for reply, verdict in (("Paris", 1.0), ("City of Light", 1.0), ("London", 0.0), ("", 0.0)):
        assert judge([(several, reply)]) == [Judgement(verdict)]


def test_of_partial_credits_the_best_counts() -> None:
    def share(reply: str, answer: str) -> float:
        """Which part of the letters is there."""
        return len(set(reply) & set(answer)) / len(set(answer))

    judgements = judge((item(share, "abcd", "ab"), reply) for reply in ("a", "abc", "xyz", ""))
    assert [judgement.verdict for judgement in judgements] == [0.5, 1.0, 0.0, 0.0]


# Graders of one's own.


@pytest.fixture
def starts_with() -> Iterator[str]:
    """The name of a grader that is a plain function."""

    @graders.function("starts_with")
    def starts_with(reply: str, answer: str) -> bool:
        """The reply begins with the answer."""
        return reply.startswith(answer)

    assert starts_with("yes, it is", "yes")
    yield "starts_with"
    del graders._entries["starts_with"]


def test_a_grader_of_ones_own_is_a_function(starts_with: str, tmp_path: Path) -> None:
    assert starts_with in graders.names()
    assert graders.doc(starts_with) == "The reply begins with the answer."
    quiz = task(jsonl(tmp_path / "q.jsonl", [{"prompt": "p", "target": "yes"}]), grade=starts_with)
    asked = quiz.item("p", "short")
    assert judge([(asked, "yes, it is")]) == [Judgement(1.0)]
    assert judge([(asked, "oh yes")]) == judge([(asked, "")]) == [Judgement(0.0)]
    write_items([asked], tmp_path / "holdout.jsonl")
    (again,) = read_items(tmp_path / "holdout.jsonl")
    assert judge([(again, "yes, it is"), (again, "")]) == [Judgement(1.0), Judgement(0.0)]


@pytest.mark.parametrize(
    ("verdict", "fault"),
    [
        (None, "returned None"),
        ("yes", "returned 'yes'"),
        (2, "returned 2"),
        (-0.5, "returned -0.5"),
        (float("nan"), "returned nan"),
    ],
)
def test_nonsense_of_a_grader_is_a_fault_whatever_the_other_answers_give(
    verdict: object, fault: str
) -> None:
    def grade(reply: str, answer: str) -> object:
        return verdict if answer == "odd" else 0.0

    for answers in (("odd",), ("plain", "odd"), ("odd", "plain")):
        (judgement,) = judge([(item(grade, *answers), "reply")])
        assert judgement.verdict == 0.0
        assert judgement.fault.startswith(fault)


def test_a_grader_that_raises_costs_one_answer() -> None:
    def grade(reply: str, answer: str) -> bool:
        return bool(reply[3] == answer)

    judgements = judge((item(grade, "d"), reply) for reply in ("abcd", "abce", ""))
    assert [judgement.verdict for judgement in judgements] == [1.0, 0.0, 0.0]
    assert [judgement.fault for judgement in judgements[:2]] == ["", ""]
    assert judgements[2].fault == "raised IndexError: string index out of range"


def test_a_pattern_that_would_run_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SECONDS", 0.2)
    asked = item(graders.build("regex"), "(a+)+b")
    began = time.monotonic()
    judgements = judge((asked, reply) for reply in ("a" * 60, "aab", "ba", ""))
    assert time.monotonic() - began < 5
    assert judgements == [
        Judgement(0.0, "took longer than 0.2 s"),
        Judgement(1.0),
        Judgement(0.0),
        Judgement(0.0),
    ]


# In data of one's own.


def task(path: Path, **knobs: object) -> DataTask:
    """The lines of a file as a task."""
    quiz = task_sources.build({"kind": "file", "name": "quiz", "path": str(path), **knobs}).task()
    assert isinstance(quiz, DataTask)
    return quiz


def judged(quiz: DataTask, replies: tuple[str, ...]) -> list[float]:
    """The verdicts on replies to the first line."""
    line = quiz.lines[0]
    asked = quiz.item(line.prompt, line.depth)
    assert [asked.verifier(reply) for reply in replies] == [
        quiz.verify(line.prompt, reply) for reply in replies
    ]
    return [judgement.verdict for judgement in judge((asked, reply) for reply in replies)]


@one_case
def test_lines_are_judged_by_the_grader_that_the_source_names(
    spec: Spec, answer: str, right: tuple[str, ...], wrong: tuple[str, ...], tmp_path: Path
) -> None:
    quiz = task(jsonl(tmp_path / "q.jsonl", [{"prompt": "p", "target": answer}]), grade=spec)
    assert judged(quiz, right + wrong + EMPTY) == [1.0] * len(right) + [0.0] * (
        len(wrong) + len(EMPTY)
    )


@one_case
def test_a_line_of_a_holdout_file_names_its_grader_and_keeps_it(
    spec: Spec, answer: str, right: tuple[str, ...], wrong: tuple[str, ...], tmp_path: Path
) -> None:
    row = {"prompt": "p", "target": answer, "family": "f", "depth": "d", "grade": spec}
    items = read_items(jsonl(tmp_path / "q.jsonl", [row]))
    write_items(items, tmp_path / "again.jsonl")
    for (asked,) in (items, read_items(tmp_path / "again.jsonl")):
        judgements = judge((asked, reply) for reply in right + wrong + EMPTY)
        assert [one.verdict for one in judgements] == [1.0] * len(right) + [0.0] * (
            len(wrong) + len(EMPTY)
        )


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


def test_data_that_are_written_down_keep_their_grader_and_all_answers(tmp_path: Path) -> None:
    lines: list[Row] = [{"prompt": f"p{n}", "target": [n, f"no {n}"]} for n in range(3)]
    quiz = task(jsonl(tmp_path / "q.jsonl", lines), grade={"kind": "contains"}, reply_tokens=80)
    asked = [quiz.item(line.prompt, line.depth) for line in quiz.lines]
    write_items(asked, tmp_path / "holdout.jsonl")
    again = read_items(tmp_path / "holdout.jsonl")
    assert again == asked
    for place, one in enumerate(again):
        replies = (f"it is {place}, I think", f"no {place}", "9", "")
        assert [reply.verdict for reply in judge((one, text) for text in replies)] == [1, 1, 0, 0]
        assert one.reply_limit == 80


@pytest.mark.parametrize(
    ("grade", "target", "said"),
    [
        ("number", "seven", "the answer 'seven': raised ValueError: could not convert string"),
        ("number", ["7", "seven"], "the answer '7': raised ValueError"),
        ("regex", "(", "the answer '(': raised error: missing ), unterminated subpattern"),
    ],
)
def test_an_answer_that_the_grader_cannot_use_is_refused_with_its_line(
    grade: str, target: object, said: str, tmp_path: Path
) -> None:
    good = {"prompt": "p", "target": "7", "family": "f", "depth": "d", "grade": grade}
    path = jsonl(tmp_path / "q.jsonl", [good, good | {"prompt": "q", "target": target}])
    with pytest.raises(DataError, match="line 2: the grader cannot use") as refused:
        task(path, grade=grade, prompt="prompt")
    assert said in str(refused.value)
    with pytest.raises(DataError, match="line 2: the grader cannot use") as refused:
        read_items(path)
    assert said in str(refused.value)


# Room for a reply, and columns that are not used.


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


@pytest.mark.parametrize("tokens", [0, -1, "9", 1.5, True])
def test_room_for_a_reply_is_a_whole_number_from_1(tokens: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reply_tokens: expected"):
        task(jsonl(tmp_path / "q.jsonl", rows(9)), reply_tokens=tokens)


def test_a_column_that_is_not_used_is_named_once(tmp_path: Path) -> None:
    lines = [row | {"note": "x", "hint": n} for n, row in enumerate(rows(9))]
    path = jsonl(tmp_path / "q.jsonl", lines)
    with pytest.warns(EcologyWarning) as said:
        read = [task(path), task(path)]
    assert read[0] is read[1]
    (warning,) = said
    assert str(warning.message).endswith("columns that are not used: note, hint")
    assert str(path) in str(warning.message)


@pytest.mark.parametrize(
    ("lines", "knobs"),
    [
        ([{"prompt": "p", "target": "t", "depth": "far"}], {}),
        ([{"prompt": "p", "target": "t"}, {"prompt": "q", "completion": "t"}], {}),
        ([{"q": "p", "a": "t"}], {"prompt": "q", "target": "a"}),
    ],
)
def test_columns_that_are_used_are_not_named(
    lines: list[Row], knobs: dict[str, object], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(jsonl(tmp_path / "q.jsonl", lines), **knobs)
