r"""Regular expressions that a model wrote, matched in time and memory that are bounded beforehand.

A backtracking matcher, such as Python's ``re``, can take for ever on a pattern as short as
``(a+)+$``. RE2 follows all ways through a pattern at once (Thompson 1968, "Programming techniques:
Regular expression search algorithm"), so time grows with the length of the text alone. No clock
decides, so a verdict is the same on a slow machine. Its syntax is Python's without what is not
regular: no look-around, and no back references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2

MAX_PATTERN_CHARS = 200
"""Characters of a pattern."""
MEMORY = 1 << 20
"""Bytes that a pattern may take, its automaton included."""


class PatternError(ValueError):
    """A text is no pattern that can be read here."""


@dataclass(frozen=True)
class Pattern:
    """A pattern that was read; make one with ``read_pattern``."""

    compiled: Any

    def fits(self, text: str) -> bool:
        """Whether it matches the whole text."""
        return self.compiled.fullmatch(text) is not None

    def find(self, text: str) -> str | None:
        """Return the first match in a text, None for none."""
        match = self.compiled.search(text)
        return None if match is None else str(match.group())


def read_pattern(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        PatternError: it is no pattern, is not regular, or is too large.
    """
    if len(text) > MAX_PATTERN_CHARS:
        raise PatternError(f"expected at most {MAX_PATTERN_CHARS} characters, got {len(text)}")
    options = re2.Options()
    options.max_mem, options.log_errors = MEMORY, False
    try:
        return Pattern(re2.compile(text, options))
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(f"{text!r}: {error}") from error
