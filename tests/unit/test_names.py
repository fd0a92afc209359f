"""Names of users: one normal form, in every script, with the same limits everywhere."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.names import MAX_USER_CHARS, user_name


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("علی\u200cرضا", "علی\u200cرضا"),  # a joiner parts the words of this name
        ("Jean\u00a0Luc", "Jean Luc"),
        ("山田\u3000太郎", "山田 太郎"),
        ("Rene\u0301", "Ren\u00e9"),
        ("\u200fדנה\u200e", "דנה"),
        ("\u202a+49 30 1234\u202c", "+49 30 1234"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("  Ada ", "Ada"),
    ],
)
def test_names_of_people_are_kept_in_one_form(written: str, kept: str) -> None:
    assert user_name(written) == kept


@pytest.mark.parametrize(
    "name", ["", " ", "\u200b", "a\nb", "a\tb", "a\u2028b", "\ud800", "x" * 201]
)
def test_what_is_no_line_of_text_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected a line of 1 to 200 characters"):
        user_name(name)


@given(st.text(max_size=2 * MAX_USER_CHARS))
def test_the_form_is_its_own_form_and_the_same_for_all_spellings(text: str) -> None:
    try:
        name = user_name(text)
    except ValueError:
        return
    assert user_name(name) == name
    for form in ("NFC", "NFD"):
        assert user_name(unicodedata.normalize(form, name)) == name
