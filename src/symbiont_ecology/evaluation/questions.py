"""Questions to measure with: drawn from the holdout split of families, or read from a JSONL file.

One line of a file is ``{"prompt", "target", "family", "depth"[, "task_id"]}``; lines that this package wrote
also carry ``payload`` and ``convention``, so that families with several right answers judge for themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.errors import DataError
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.grading import final_answer
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import DEPTHS, Item

DEFAULT_REPLY_LIMIT = 64
"""New tokens for a question of a family that this package does not know."""


@dataclass(frozen=True)
class Question:
    """A prompt with its gold target. ``item`` is there when a family of this package can judge the reply."""

    id: str
    prompt: str
    target: str
    family: str
    depth: str
    reply_limit: int
    item: Item | None = None
    shift: str = ""
    """What it differs in from what was learned (``evaluation.shifts``); empty when it came from a file."""

    @property
    def cell(self) -> str:
        """``family/depth``."""
        return f"{self.family}/{self.depth}"

    def verdict(self, reply: str) -> float:
        """1.0 if the reply is right, else 0.0."""
        if self.item is not None:
            return task_families.build(self.item.family).verify(self.item, reply)
        return float(final_answer(reply) == self.target.strip())


def draw_questions(
    tasks: TaskMixture, per_cell: int, seed: int = 0, split: Split = "holdout"
) -> list[Question]:
    """Different questions of every cell, ``per_cell`` of each or all that it has; the same for a seed.

    They are judged in the conventions that are in force in the mix.
    """
    questions = []
    for cell in tasks.cells:
        family = tasks.families[cell[0]]
        for drawn in family.distinct(cell[1], per_cell, Draw(seed)("questions", split, *cell), split=split):
            item = family.item(drawn.payload, drawn.depth, tasks.convention(family.name))
            limit = tasks.reply_limit(item)
            questions.append(
                Question(item.id, tasks.prompt(item), item.answer, item.family, item.depth, limit, item)
            )
    return questions


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSONL file.

    Raises:
        DataError: the file or one of its lines breaks the schema; the message names the line.
    """
    try:
        # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read questions from {path}: {error}") from error
    questions = [
        _parse(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not questions:
        raise DataError(f"{path} holds no questions: expected one JSON object per line")
    return questions


def write_questions(questions: Iterable[Question], path: Path) -> None:
    """Writes questions as JSONL that ``read_questions`` reads back."""
    rows = []
    for question in questions:
        row: dict[str, object] = {"prompt": question.prompt, "target": question.target}
        row |= {"family": question.family, "depth": question.depth, "task_id": question.id}
        if question.item is not None:
            row |= {"payload": question.item.payload, "convention": question.item.convention}
        rows.append(json.dumps(row, ensure_ascii=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _parse(line: str, where: str) -> Question:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object, got {line[:40]!r}")
    for key in ("prompt", "target", "family", "depth"):
        if not isinstance(row.get(key), str) or not row[key] or (key == "target" and not row[key].strip()):
            raise DataError(f"{where}: expected text under {key!r}, got {row.get(key)!r}")
    item = _item(row, where)
    limit = DEFAULT_REPLY_LIMIT
    if row["family"] in task_families.names() and row["depth"] in DEPTHS:
        limit = task_families.build(row["family"]).reply_limit(row["depth"])
    identity = str(row.get("task_id", where))
    return Question(identity, row["prompt"], row["target"], row["family"], row["depth"], limit, item)


def _item(row: dict[str, object], where: str) -> Item | None:
    payload, convention = row.get("payload"), row.get("convention")
    if not isinstance(payload, str) or row["family"] not in task_families.names():
        return None
    if row["depth"] not in DEPTHS or convention not in (0, 1, 2):
        raise DataError(f"{where}: expected a depth of {DEPTHS} and a convention of 0, 1 or 2")
    try:
        item = task_families.build(str(row["family"])).item(payload, row["depth"], convention)
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(f"{where}: {payload!r} is no payload of {row['family']}") from error
    if item.answer != row["target"]:
        raise DataError(f"{where}: expected the target {item.answer!r}, got {row['target']!r}")
    return item


def some_of(questions: Sequence[Question], most: int | None, seed: int = 0) -> list[Question]:
    """At most so many of the questions, by draw, in their order; all of them for None."""
    if most is None or len(questions) <= most:
        return list(questions)
    chosen = Draw(seed)("some of").permutation(len(questions))[:most]
    return [questions[index] for index in sorted(chosen)]


def families_of(questions: Sequence[Question]) -> list[str]:
    """The families that occur, in order of first appearance."""
    return list(dict.fromkeys(question.family for question in questions))
