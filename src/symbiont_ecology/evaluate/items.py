"""Items to measure with: drawn from the holdout split of tasks, or read from a file.

One line of a file is ``{"prompt", "target", "family", "depth"[, "task_id", "grade"]}``. Lines that
this package wrote also carry ``payload`` and ``convention``, so that their own task judges them,
and ``reply_limit`` (new tokens) if it is not the usual one. A line of any other origin is judged by
the grader that it names, ``exact`` by default; its family may be any words, and so may its depth,
without a slash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, in_turns
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.data import DataLine, check_gradable, line_of
from symbiont_ecology.tasks.grading import ReferenceVerifier, graders
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import FewShot, PromptStyle
from symbiont_ecology.tasks.tables import (
    READERS,
    check_columns,
    check_whole,
    locate,
    rows_of_file,
    text_in,
)

DEFAULT_REPLY_LIMIT = 64
"""New tokens for an item of a family that this package does not know."""


def draw_items(
    mixture: TaskMixture, per_cell: int, seed: int = 0, split: Split = "holdout"
) -> list[Item]:
    """Return different items of every cell, ``per_cell`` of each or all that it has, by a seed.

    They are judged as the mixture judges now.
    """
    return [
        item
        for family, depth in mixture.cells
        for item in mixture.families[family].distinct(
            depth, per_cell, Draw(seed)("questions", split, family, depth), split=split
        )
    ]


def read_items(path: Path) -> list[Item]:
    """Return the items of a table; one of the package's own may be named as ``find_data`` says.

    Raises:
        DataError: the file or one of its lines breaks the schema; the message names the line.
    """
    about = str(path)
    ending = path.suffix if path.suffix in READERS else ".jsonl"  # copies have no ending
    rows = rows_of_file(locate(about, about)[0], about, ending=ending)
    if items := [_parse(row, f"{about} {place}") for place, row in rows]:
        return items
    raise DataError(f"{about} holds no questions: expected one JSON object per line")


def _parse(row: Mapping[str, Any], where: str) -> Item:
    check_columns(row, ["family", "depth"], where, "add it")
    family = text_in(row, "family", where)
    text_in(row, "depth", where)  # a line of data may have none
    line = line_of(row, "prompt", "target", where)
    identity = row.get("task_id")
    name = where if identity is None else str(identity)
    check_whole((family, name), where)
    limit = row.get("reply_limit", usual_limit(family, line.depth))
    if type(limit) is not int or limit < 1:
        raise DataError(
            f"{where}: expected a whole number from 1 under 'reply_limit', got {limit!r:.60}"
        )
    limit = max(limit, *(len(answer.encode()) + 1 for answer in line.answers))
    if task_item := _own_item(row, line, where):
        return replace(task_item, id=name, prompt=line.prompt, reply_limit=limit)
    try:
        grader = graders.build(row.get("grade", "exact"))
    except ConfigError as error:
        raise DataError(f"{where}: grade: {error}") from error
    verifier = ReferenceVerifier(grader, line.answers)
    item = Item(
        id=name,
        family=family,
        depth=line.depth,
        question=line.prompt,
        prompt=line.prompt,
        reply_limit=limit,
        verifier=verifier,
        answer=line.answers[0],
    )
    check_gradable([(where, item)])
    return item


def usual_limit(family: str, depth: str) -> int:
    """Return the new tokens for an item of a cell whose line does not say how many."""
    if family in tasks.names() and depth in tasks[family].depths:
        return tasks.build(family).reply_limit(depth)
    return DEFAULT_REPLY_LIMIT


def _own_item(row: Mapping[str, Any], line: DataLine, where: str) -> Item | None:
    """Return the item of a line that this package wrote; None for a line of another origin."""
    question, variant, family = row.get("payload"), row.get("convention"), row["family"]
    is_ours = isinstance(question, str) and "convention" in row  # others may have a payload too
    if not is_ours or family not in tasks.names():
        return None
    task = tasks.build(family)
    if line.depth not in task.depths or variant not in range(task.variants):
        raise DataError(
            f"{where}: expected a depth of {tuple(task.depths)} and a convention from 0 to "
            f"{task.variants - 1}"
        )
    try:
        item = task.in_variant(int(variant or 0)).item(str(question), line.depth)
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(f"{where}: {question!r} is no payload of {family}") from error
    if item.answer != line.answers[0]:
        raise DataError(f"{where}: expected the target {item.answer!r}, got {line.answers[0]!r}")
    return item


def some_of(items: Sequence[Item], max_count: int | None) -> list[Item]:
    """Return at most so many of the items, by draw, in their order; all of them for None."""
    if max_count is None or len(items) <= max_count:
        return list(items)
    indices = Draw(0)("some of").permutation(len(items))[:max_count]
    return [items[index] for index in sorted(indices)]


def in_style(items: Sequence[Item], style: PromptStyle) -> list[Item]:
    """Return items as a run with this style asks them: line end, what the system says, and solved
    examples of their family. Items keep their own words.

    Raises:
        ConfigError: the style has examples, and none of the items is of a family that has some.
    """
    names = dict.fromkeys(item.family for item in items)
    families = [tasks.build(name) for name in names if name in tasks.names()]
    synthetic = tuple(task.in_style(style) for task in families if isinstance(task, SyntheticTask))
    if synthetic:
        mixture = TaskMixture(synthetic)
        return [mixture.as_asked(item) for item in items]
    if isinstance(style, FewShot):
        raise ConfigError("style few_shot: no family here has examples: choose natural or terse")
    return [replace(item, prompt=_styled(item.prompt, style)) for item in items]


def _styled(prompt: str, style: PromptStyle) -> str:
    prompt = prompt.removesuffix(style.line_end) + style.line_end
    return prompt if style.system is None else in_turns(style.system, prompt)
