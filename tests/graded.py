"""Replies that each grader takes for right, and for wrong; lines of a file as a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from symbiont_ecology.base.registry import Spec
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataTask

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
    ("normalised", "3.5", ("3.5", "Answer: 3.5.", "$3.5!"), ("35", "3", "5", "-3.5", ".35")),
    ("normalised", "-5", ("-5", "\u22125", "(-5)", "It is:\n-5."), ("5", "3-5", "-55")),
    ("normalised", "1/2", ("1/2", "`1/2`."), ("12", "2", "1 2")),
    ("normalised", "1,005", ("1005", "1,005."), ("1.005", "5")),
    ("normalised", "F-16", ("F16", "the F-16"), ("16", "-16", "F")),
    ("normalised", "A", ("A", "a", "(A)", "Answer: A"), ("B", "the", "an", "a cat")),
    ("normalised", "+", ("+", "`+`", "Answer: +"), ("-", "plus", "1")),
    (
        "stated",
        "Paris",
        ("Paris", "paris.", "It is Paris.", "The capital is **Paris**!", "Sure! The city: Paris"),
        ("London", "Paris or London", "It is Paris. It is London.", "London\nParis", "Paris is"),
    ),
    ("stated", "The Beatles", ("Those are the Beatles.", "beatles"), ("the", "The Stones")),
    ("stated", "-5", ("-5", "It is -5.", "x = \u22125"), ("5", "It is 5.", "-5 or 5")),
    ("stated", "3.5", ("3.5", "That makes 3.5."), ("35", "It is 35.", "It is 3.5. It is 3.")),
    ("stated", "The", ("The", "It is the."), ("a", "an", "Paris")),
    ("stated", "St. Ives", ("St. Ives", "st ives!"), ("Ives", "It is Rome.")),
    (
        "number",
        "72",
        ("72", "72.0", "It is 36 + 36 = 72 apples.", "first 70, then 72", "7.2e1", "+72", "72."),
        ("73", "72 or 73", "-72", "seventy-two", "7 2", "720", "0.72"),
    ),
    ("number", "1,005", ("1005", "1,005", "That makes 1,005 in all."), ("1", "005", "1.005")),
    ("number", "-0.5", ("-0.5", "x = -.5", "-5e-1"), ("0.5", "-5", "- 0.5")),
    ("number", "-5", ("-5", "It is \u22125.", "(-5)", "*-5*", "_-5_"), ("5", "3-5", "3\u22125")),
    ("number", "5", ("5", "3-5", "3\u20135", "10%-5%", "F-5"), ("-5", "\u22125", "x=-5")),
    ("number", "\u22125", ("-5", "\u22125"), ("5",)),
    ("number", "0", ("0", "-0", "0.0"), ("1", "none", "1e-3")),
    (
        {"kind": "number", "tolerance": 0.01},
        "3.1416",
        ("3.14", "3.15", "about 3.1416"),
        ("3.2", "-3.14", "3"),
    ),
    (
        {"kind": "number", "tolerance": 0.1},
        "-100",
        ("-100", "-110", "-90"),
        ("-111", "-89", "100", "inf"),
    ),
    ({"kind": "number", "tolerance": 0.1}, "1", ("1.1", "0.9"), ("1.11", "0.89")),
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
    ids=[f"{spec}: {answer!r}" for spec, answer, *_ in CASES],
)


def task(path: Path, **knobs: object) -> DataTask:
    """The lines of a file as a task."""
    quiz = task_sources.build({"kind": "file", "name": "quiz", "path": str(path), **knobs}).task()
    assert isinstance(quiz, DataTask)
    return quiz
