"""Files that are there whole or not at all, and logs that a crash may have torn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from symbiont_ecology.errors import RunError


def write_whole(path: Path, text: str) -> None:
    """Writes a text by atomic rename: who is killed meanwhile leaves what was there before.

    Raises:
        RunError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a log, with the numbers of their lines from 1; what a crash tore is left out.

    Raises:
        RunError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield number, dict(json.loads(line))
        except ValueError:
            continue
