"""Graders: what is right by each of them, what is wrong, and that no grader can stop a run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asked import write_items
from graded import CASES, EMPTY, one_case, task
from lines import jsonl, rows
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.items import read_items
from symbiont_ecology.tasks import Judgement, judge, verification
from symbiont_ecology.tasks.grading import (
    MAX_REPLY_CHARS,
    Grader,
    ReferenceVerifier,
    final_answer,
    graders,
    normalised,
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
    if graders.build("normalised")(reply, answer) and len(reply) < MAX_REPLY_CHARS:
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
    assert time.process_time() - began < 5


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
    assert judgements[2].fault.startswith("raised IndexError: string index out of range")


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
