"""Questions to measure with: drawn from the holdout split of families, or read from a JSONL file.

One line of a file is ``{"prompt", "target", "family", "depth"[, "task_id"]}``; lines that this
package wrote also carry ``payload`` and ``convention``, so that families with several right answers
judge for themselves, and ``reply_limit`` (new tokens) where it is not the usual one. A line of any
other origin is right if its reply ends in its target; family and depth may be any words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from symbiont_ecology.config import find_data
from symbiont_ecology.errors import DataError
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import task_families
from symbiont_ecology.tasks.family import is_answer
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.types import DEPTHS, Item

DEFAULT_REPLY_LIMIT = 64
"""New tokens for a question of a family that this package does not know."""


@dataclass(frozen=True)
class Question:
    """A prompt with its gold target. ``item`` is there when a family of this package can judge the
    reply.

    ``reply_limit`` is in new tokens, and never less than the target takes at one token per byte.
    """

    id: str
    prompt: str
    target: str
    family: str
    depth: str
    reply_limit: int
    item: Item | None = None
    shift: str = ""
    """What it differs in from what was learned (``evaluation.shifts``); empty when it came from a
    file."""

    def __post_init__(self) -> None:
        least = len(self.target.strip().encode(errors="replace")) + 1
        object.__setattr__(self, "reply_limit", max(self.reply_limit, least))

    @property
    def cell(self) -> str:
        """``family/depth``."""
        return f"{self.family}/{self.depth}"

    @property
    def asked(self) -> str:
        """What it asks, in whatever words: two of these are not independent."""
        return self.id if self.item is None else f"{self.family}/{self.item.payload}"

    def verdict(self, reply: str) -> float:
        """1.0 if the reply is right, else 0.0."""
        if self.item is not None:
            return task_families.build(self.item.family).verify(self.item, reply)
        return float(is_answer(reply, self.target))


def draw_questions(
    tasks: TaskMixture, per_cell: int, seed: int = 0, split: Split = "holdout"
) -> list[Question]:
    """Different questions of every cell, ``per_cell`` of each or all that it has; the same for a
    seed.

    They are judged in the conventions that are in force in the mix.
    """
    questions = []
    for cell in tasks.cells:
        family = tasks.families[cell[0]]
        for drawn in family.distinct(
            cell[1], per_cell, Draw(seed)("questions", split, *cell), split=split
        ):
            item = family.item(drawn.payload, drawn.depth, tasks.convention(family.name))
            prompt, limit = tasks.prompt(item), tasks.reply_limit(item)
            judged = None if family.is_written else item  # the target says it all
            questions.append(
                Question(item.id, prompt, item.answer, item.family, item.depth, limit, judged)
            )
    return questions


def read_questions(path: Path) -> list[Question]:
    """The questions of a JSONL file; one of the package's own may be named as ``find_data`` says.

    Raises:
        DataError: the file or one of its lines breaks the schema; the message names the line.
    """
    try:
        # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
        lines = find_data(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read questions from {path}: {error}") from error
    questions = [
        _parse(line, f"{path} line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
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
        if question.reply_limit != _usual_limit(question.family, question.depth):
            row["reply_limit"] = question.reply_limit
        rows.append(json.dumps(row, ensure_ascii=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _parse(line: str, where: str) -> Question:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object, got {line[:40]!r}")
    for key in ("prompt", "target", "family", "depth"):
        if (
            not isinstance(row.get(key), str)
            or not row[key]
            or (key == "target" and not row[key].strip())
        ):
            raise DataError(f"{where}: {_no_text(key, row.get(key))}")
    try:
        f"{row['prompt']}{row['target']}".encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: half a character, {error.object[error.start]!a}") from error
    item = _item(row, where)
    limit = row.get("reply_limit", _usual_limit(row["family"], row["depth"]))
    if type(limit) is not int or limit < 1:
        raise DataError(
            f"{where}: expected a whole number from 1 under 'reply_limit', got {limit!r:.60}"
        )
    identity = where if row.get("task_id") is None else str(row["task_id"])
    return Question(
        identity, row["prompt"], row["target"], row["family"], row["depth"], limit, item
    )


def _usual_limit(family: str, depth: str) -> int:
    if family in task_families.names() and depth in DEPTHS:
        return task_families.build(family).reply_limit(depth)
    return DEFAULT_REPLY_LIMIT


def _no_text(key: str, found: object) -> str:
    said = f"expected text under {key!r}, got {found!r:.60}"
    # True or true, 8 or 8.0: whoever knows what a right reply looks like has to say.
    is_bare = isinstance(found, bool | int | float) and key == "target"
    return said + (
        f"; write it as the reply should be, such as {json.dumps(str(found))}" if is_bare else ""
    )


def _item(row: dict[str, object], where: str) -> Item | None:
    payload, convention = row.get("payload"), row.get("convention")
    is_ours = isinstance(payload, str) and "convention" in row  # others may have a payload too
    if not is_ours or row["family"] not in task_families.names():
        return None
    assert isinstance(payload, str)
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
