"""Patterns that a model wrote: they mean what they mean in Python, and never take long."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbiont_ecology.tasks.patterns import MOST_STEPS, PatternError, read_pattern

ATOMS = ["a", "b", "-", r"\d", r"\W", r"\.", ".", "[ab]", "[^a]", "[a-c-]", "[]a]", "^", "$", r"\b"]
COUNTS = ["", "*", "+", "?", "{2}", "{,2}", "{1,}", "{1,3}", "*?", "+?", "{0}"]


def patterns() -> st.SearchStrategy[str]:
    """Patterns of everything that can be read."""
    part = st.builds(str.__add__, st.sampled_from(ATOMS[:-3]), st.sampled_from(COUNTS))
    part |= st.sampled_from(ATOMS[-3:])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        """Rows, alternatives and groups of smaller ones."""
        row = st.lists(inner, max_size=3).map("".join)
        either = st.lists(row, min_size=1, max_size=3).map("|".join)
        group = st.builds("({}{}){}".format, st.sampled_from(["", "?:"]), either, st.just(""))
        return row | group | st.builds("{}{}".format, group, st.sampled_from(COUNTS))

    return st.recursive(part, grown, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(pattern=patterns(), texts=st.lists(st.text("ab-1. ", max_size=6), max_size=5))
def test_a_pattern_means_what_it_means_in_python(pattern: str, texts: list[str]) -> None:
    made = read_pattern(pattern)
    for text in texts:
        assert made.fits(text) is (re.fullmatch(pattern, text) is not None), (pattern, text)


@settings(max_examples=300, deadline=None)
@given(text=st.text("ab1()[]{}|*+?^$.,-\\dwbB:=!<P", max_size=12))
def test_what_python_refuses_is_refused_and_what_is_read_means_the_same(text: str) -> None:
    try:
        made = read_pattern(text)
    except PatternError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        known = re.compile(text)
    for tried in ("", "a", "ab", "b1", "a{", "aa b"):
        assert made.fits(tried) is (known.fullmatch(tried) is not None), (text, tried)


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "(a", "[a", "[", "*a", "a**", "a{2}{3}", "a*+", "a{3,2}", "[b-a]"),
        *("\\", "\\q", r"(a)\1", "(?=a)", "(?i)a", "(?P<n>a)", "(?"),
        *("(" * 50 + ")" * 50, "a" * 201),
    ],
)
def test_what_is_no_regular_pattern_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        read_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("a+b", "caabab", "aab"), ("b*", "aab", ""), ("c", "ab", None), ("a|ab", "cab", "ab")],
)
def test_the_first_and_longest_match_is_found(pattern: str, text: str, found: str | None) -> None:
    assert read_pattern(pattern).find(text) == found


EVIL = ["(a+)+$", "(a|aa)+$", "(a*)*b", "((a?){20}){20}", "(.*){9}x", "(a|a)*c", "(a?){99}a{99}"]


@pytest.mark.parametrize("pattern", EVIL)
def test_a_pattern_that_makes_backtracking_explode_ends_at_once(pattern: str) -> None:
    began = time.process_time()
    made = read_pattern(pattern)
    made.fits("a" * 500 + "!")
    assert time.process_time() - began < 5.0
    assert len(made.steps) <= MOST_STEPS + 1


def test_counts_within_counts_are_refused_before_they_are_written_out() -> None:
    began = time.process_time()
    for text in (
        "(((a{99}){99}){99}){99}",
        "a{999999999}",
        "(a{1000000,}){1000000}",
        "(){99999999}",
    ):
        try:
            read_pattern(text)
        except PatternError:
            continue
    assert time.process_time() - began < 1.0


def test_a_long_text_takes_time_in_proportion_to_its_length() -> None:
    began = time.process_time()
    assert not read_pattern("(a+)+$").fits("a" * 20_000 + "!")
    assert time.process_time() - began < 5.0
