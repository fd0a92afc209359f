"""Lines of data that somebody wrote, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows(count: int = 80, start: int = 0) -> list[Row]:
    """Lines whose targets the toy host can say."""
    return [
        {"prompt": f"quiz: no {number}", "target": "abc"[number % 3]}
        for number in range(start, start + count)
    ]


def jsonl(path: Path, lines: list[Row]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def quiz(path: Path, name: str = "quiz") -> dict[str, Any]:
    return {"kind": "file", "name": name, "path": str(path)}
