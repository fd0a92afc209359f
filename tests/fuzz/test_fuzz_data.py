"""Questions and data of one's own by mutation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutations import Count, mutated, torn
from symbiont_ecology.base.transcripts import plain
from symbiont_ecology.evaluate.items import read_items
from symbiont_ecology.tasks import task_sources

QUESTIONS: list[Any] = [
    {"prompt": "2+2=", "target": "4", "family": "own", "depth": "short", "task_id": "a"},
    {"prompt": "3+2=", "target": ["5", 5.0], "family": "own", "depth": "long", "grade": "number"},
    {"prompt": "math.add: 4+5\n", "target": "=9", "family": "math.add", "depth": "short",
     "payload": "4+5", "convention": 1, "reply_limit": 9},
    {"prompt": "Is it?", "target": "B", "family": "own", "depth": "short",
     "grade": {"kind": "choice", "choices": ["A", "B"]}},
]  # fmt: skip
LINES: list[Any] = [
    {"prompt": f"question {number}", "target": str(number), "depth": "short", "user": f"u{number}"}
    for number in range(6)
]


def lines_of(rows: list[Any]) -> bytes:
    """Rows as JSONL, half characters included."""
    return "\n".join(json.dumps(row) for row in rows).encode(errors="surrogatepass")


def any_rows(rows: list[Any], generator: np.random.Generator) -> bytes:
    """The rows, mutated as values or as text."""
    if generator.random() < 0.7:
        changed = mutated(rows, generator)
        return lines_of(changed if isinstance(changed, list) else [changed])
    return torn(lines_of(rows), generator)


def test_questions_of_any_kind_are_read_or_refused_in_one_line(cases: int, tmp_path: Path) -> None:
    path = tmp_path / "holdout.jsonl"

    def case(generator: np.random.Generator) -> None:
        path.write_bytes(any_rows(QUESTIONS, generator))
        for item in read_items(path):
            assert item.prompt.encode()
            assert f"{item.id}{item.family}{item.depth}{item.answer}".encode()

    Count("questions").run(cases, case)


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_data_of_any_kind_are_read_or_refused_in_one_line(
    ending: str, cases: int, tmp_path: Path
) -> None:
    def case(generator: np.random.Generator) -> None:
        path = tmp_path / f"data-{generator.integers(1 << 60)}.{ending}"
        data = any_rows(LINES, generator)
        path.write_bytes(data if ending == "jsonl" else b"[" + data.replace(b"\n", b",") + b"]")
        spec: Any = {"kind": "file", "name": "own", "path": str(path), "user": "user"}
        if generator.random() < 0.3:
            changed = mutated({key: spec[key] for key in ("name", "path")}, generator)
            spec = {"kind": "file", **changed} if isinstance(changed, dict) else changed
        for line in task_sources.build(spec).task().lines:  # type: ignore[attr-defined]
            assert f"{line.depth}{line.question}{line.answers}".encode()

    Count(f"data in {ending}").run(cases, case)


def test_what_a_terminal_is_shown_has_no_control_characters(cases: int) -> None:
    def case(generator: np.random.Generator) -> None:
        text = torn("an answer: ‘42’ \x1b[31m".encode(), generator).decode(errors="replace")
        assert plain(text, 60).isprintable()

    Count("shown").run(cases, case)
