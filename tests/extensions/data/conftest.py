"""A file of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import symbiont_ecology.cli  # noqa: F401 (before its extensions)
from lines import jsonl, rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eighty lines."""
    return jsonl(tmp_path / "quiz.jsonl", rows())
