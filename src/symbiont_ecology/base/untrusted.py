"""Reading of what somebody else wrote: regular files, JSON and patterns, of a bounded size and
depth.

A backtracking matcher, such as Python's ``re``, can take for ever on a pattern as short as
``(a+)+$``. RE2 follows all ways through a pattern at once (Thompson 1968, "Programming techniques:
Regular expression search algorithm"), so time grows with the length of the text alone. No clock
decides, so a verdict is the same on a slow machine. Its syntax is Python's without what is not
regular: no look-around, and no back references.
"""

from __future__ import annotations

import codecs
import json
import stat
from pathlib import Path
from typing import Any

MAX_DEPTH = 100
"""Levels of nesting in data of others: deeper ones overflow the stack of whoever shows them."""
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins as UTF-16's does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
"""Encodings by the mark at the beginning of a text."""
MAX_PATTERN_CHARS = 200
MAX_PATTERN_BYTES = 1 << 20
"""Memory that a pattern may take, its automaton included."""


def read_regular(path: Path, most_megabytes: float) -> str:
    """Return the text of a file that somebody else wrote, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file (a pipe or a device may be endless), too large, or neither
            UTF-8 nor UTF-16 or UTF-32 with its mark.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("expected a regular file, got a folder, a pipe or a device")
    if status.st_size > most_megabytes * 2**20:
        raise ValueError(
            f"the file has {status.st_size / 2**20:.0f} MB, at most {most_megabytes:g} are read"
        )
    with path.open("rb") as stream:
        head = stream.read(4)
    encoding = next((_MARKS[mark] for mark in _MARKS if head.startswith(mark)), "utf-8")
    try:
        return path.read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text in UTF-8, got {error}: save it as UTF-8") from error


def parse_json(text: str) -> object:
    """Return JSON that somebody else wrote.

    Raises:
        ValueError: it is no JSON, a number in it is too long, or it is nested too deep.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    if text.count("[") + text.count("{") > MAX_DEPTH:  # a look at every value would be slow
        check_depth(value)
    return value


def check_depth(value: object) -> None:
    """Refuse values within values within values.

    Raises:
        ValueError: they are nested too deep.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        children: list[object] = []
        for node in level:
            if isinstance(node, dict | list):
                children += node.values() if isinstance(node, dict) else node
        if not children:
            return
        level = children
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


class PatternError(ValueError):
    """A text is no pattern that can be read here."""


def read_pattern(text: str, max_chars: int | None = MAX_PATTERN_CHARS) -> Any:
    """Return a pattern of RE2, which has the methods of one of ``re``.

    Raises:
        PatternError: it is no pattern, is not regular, or is too large.
    """
    import re2

    if max_chars is not None and len(text) > max_chars:
        raise PatternError(f"expected at most {max_chars} characters, got {len(text)}")
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_PATTERN_BYTES, False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(f"{text!r:.100}: {error}") from error
