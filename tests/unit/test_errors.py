"""What errors say, in lines."""

from __future__ import annotations

import pytest

from symbiont_ecology.base.errors import lines_of


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ValueError("one"), ["one"]),
        (ValueError("\n one:\n\n\ttwo  words\n"), ["one:", "two words"]),
        (OSError(), ["OSError"]),
        (KeyError(" \n "), ["' \\n '"]),
        (RuntimeError(" \n "), ["RuntimeError"]),
    ],
)
def test_an_error_has_a_line_at_least_and_none_is_empty(error: Exception, lines: list[str]) -> None:
    assert lines_of(error) == lines
