"""Patterns that a model wrote: they mean what they mean in Python, and never take long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbiont_ecology.base.untrusted import PatternError, read_pattern

ATOMS = ["a", "b", "-", r"\d", r"\.", ".", "[ab]", "[^a]", "[a-c-]", "[]a]"]
COUNTS = ["", "*", "+", "?", "{2}", "{1,}", "{1,3}", "*?", "+?", "{0}"]
EVIL = ["(a+)+$", "(a|aa)+$", "(a*)*b", "((a?){20}){20}", "(.*){9}x", "(a|a)*c", "(a?){99}a{99}"]


def patterns() -> st.SearchStrategy[str]:
    """Patterns of what Python and RE2 both read."""
    part = st.builds(str.__add__, st.sampled_from(ATOMS), st.sampled_from(COUNTS))

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        """Rows, alternatives and groups of smaller ones."""
        row = st.lists(inner, min_size=1, max_size=3).map("".join)
        either = st.lists(row, min_size=1, max_size=3).map("|".join)
        group = st.builds("({}{})".format, st.sampled_from(["", "?:"]), either)
        return row | group | st.builds("{}{}".format, group, st.sampled_from(COUNTS))

    return st.recursive(part, grown, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(pattern=patterns(), texts=st.lists(st.text("ab-1. ", max_size=6), max_size=5))
def test_a_pattern_means_what_it_means_in_python(pattern: str, texts: list[str]) -> None:
    made = read_pattern(pattern)
    for text in texts:
        assert bool(made.fullmatch(text)) is (re.fullmatch(pattern, text) is not None), (
            pattern,
            text,
        )


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=12) | st.text("ab1()[]{}|*+?^$.,-\\dwbB:=!<P", max_size=12))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        made = read_pattern(text)
    except PatternError:
        return
    made.fullmatch("ab")


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "(a", "[a", "[", "*a", "a*+", "a{3,2}", "[b-a]"),
        *("\\", "\\q", r"(a)\1", "(?=a)", "(?<!a)", "(?", "\ud800"),
        *("a" * 201, "(((a{99}){99}){99}){99}", "a{999999999}"),
    ],
)
def test_what_is_no_regular_pattern_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        read_pattern(text)


@pytest.mark.parametrize("pattern", EVIL)
def test_a_pattern_that_makes_backtracking_explode_ends_at_once(pattern: str) -> None:
    began = time.process_time()
    read_pattern(pattern).fullmatch("a" * 20_000 + "!")
    assert time.process_time() - began < 5.0
