"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

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
