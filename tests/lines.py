"""Lines of data that somebody wrote, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from symbiont_ecology.base.registry import Spec
from symbiont_ecology.run.config import RunConfig, compose

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


def config(
    *families: Spec, depths: str = "short", generations: int = 6, strategy: Spec = "single"
) -> RunConfig:
    """The config of a toy run, as if it had been read from a file."""
    words = (
        f"tasks.families={json.dumps(families)}",
        f"tasks.depths=[{depths}]",
        f"strategy={json.dumps(strategy)}",
        f"run.generations={generations}",
        "run.checkpoint_every=2",
        "economy={dowry: 12000, grace: 1, cap: 40000}",
    )
    return compose((), words, "test")
