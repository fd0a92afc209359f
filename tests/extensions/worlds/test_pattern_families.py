"""Families whose answers are patterns: whatever tells the examples apart is right, and no reply
takes long."""

from __future__ import annotations

import re
import time

import pytest

from items import family_of, items
from symbiont_ecology.tasks import judge
from symbiont_ecology.tasks.synthetic.family import DEPTHS

every_writing_cell = pytest.mark.parametrize(
    ("name", "depth"), [(name, depth) for name in ("regex.write", "regex.mend") for depth in DEPTHS]
)
EVIL = ("(a+)+$", "(a|aa)+$", "((((a*)*)*)*)*b", "(.*)*x", "(a?){99}a{99}", "(((a{9}){9}){9}){9}")


def examples(question: str) -> tuple[list[str], list[str]]:
    """The words before the bar, and those behind it."""
    words, others = question.rpartition(": ")[2].split(" | ")
    return words.split(), others.split()


@every_writing_cell
def test_any_pattern_that_tells_the_examples_apart_is_right(name: str, depth: str) -> None:
    for item in items(name, depth, 30):
        words, others = examples(item.question)
        listed = "|".join(words)
        for reply in (listed, f"({listed})", f"(?:{listed}){{1}}", f"{listed}|{words[0]}"):
            assert item.verifier(reply) == 1.0, (item.question, reply)
        for reply in (".*", f"{listed}|{others[0]}", f"({listed}", f"{words[0]}|", r"(a)\1"):
            assert item.verifier(reply) == 0.0, (item.question, reply)


@every_writing_cell
def test_the_reference_answer_agrees_with_python(name: str, depth: str) -> None:
    for item in items(name, depth, 60):
        words, others = examples(item.question)
        assert all(re.fullmatch(item.answer, word) for word in words), item
        assert not any(re.fullmatch(item.answer, word) for word in others), item


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pattern_to_be_mended_is_wrong_as_it_stands(depth: str) -> None:
    for item in items("regex.mend", depth, 60):
        assert item.verifier(item.question.partition(": ")[0]) == 0.0, item


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_found_is_what_python_finds(depth: str) -> None:
    for item in items("regex.find", depth, 60):
        pattern, word = item.question.split(" ")
        found = next(match for match in re.finditer(pattern, word))
        assert item.answer == f'"{found.group()}"'


@pytest.mark.parametrize("name", ["regex.write", "regex.mend", "regex.find"])
def test_a_question_that_is_none_is_refused(name: str) -> None:
    for question in ("", "ab", "a | ", "(: a | b |", "* a b", "a b c"):
        with pytest.raises(ValueError, match=r"\w"):
            family_of(name).answers(question)


def test_patterns_that_would_run_for_ever_cost_a_batch_no_time() -> None:
    asked = [item for name in ("regex.write", "regex.mend") for item in items(name, "long", 40)]
    began = time.process_time()
    judged = judge((item, EVIL[place % len(EVIL)]) for place, item in enumerate(asked))
    assert time.process_time() - began < 10.0
    assert not any(judgement.fault or judgement.verdict for judgement in judged)
