"""Items to measure with: drawn from the holdout split of tasks, or read from a JSONL file.

One line of a file is ``{"prompt", "target", "family", "depth"[, "task_id", "grade"]}``. Lines that
this package wrote also carry ``payload`` and ``convention``, so that their own task judges them,
and ``reply_limit`` (new tokens) if it is not the usual one. A line of any other origin is judged by
the grader that it names, ``exact`` by default; its family may be any words, and so may its depth,
without a slash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from symbiont_ecology.errors import ConfigError, DataError
from symbiont_ecology.files import write_whole
from symbiont_ecology.rng import Draw
from symbiont_ecology.shipped import find_data
from symbiont_ecology.tasks import tasks
from symbiont_ecology.tasks.data import check_gradable, depth_of, reference_answer
from symbiont_ecology.tasks.grading import ReferenceVerifier, graders
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import FewShot, PromptStyle
from symbiont_ecology.tasks.tables import LARGEST_MB, check_whole, locate, rows_of_file
from symbiont_ecology.types import Item, in_turns, last_turn
from symbiont_ecology.untrusted import parse_json, read_regular

DEFAULT_REPLY_LIMIT = 64
"""New tokens for an item of a family that this package does not know."""


def draw_items(
    mixture: TaskMixture, per_cell: int, seed: int = 0, split: Split = "holdout"
) -> list[Item]:
    """Different items of every cell, ``per_cell`` of each or all that it has; the same for a seed.

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
    """The items of a JSONL file; one of the package's own may be named as ``find_data`` says.

    Raises:
        DataError: the file or one of its lines breaks the schema; the message names the line.
    """
    try:
        # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
        lines = read_regular(find_data(path), LARGEST_MB).split("\n")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read questions from {path}: {error}") from error
    items = [
        _parse(line, f"{path} line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not items:
        raise DataError(f"{path} holds no questions: expected one JSON object per line")
    return items


def write_items(items: Iterable[Item], path: Path) -> None:
    """Writes items as ``items_as_lines`` has them; the file is whole or not there.

    Raises:
        RunError: it cannot be written.
        OSError: its folder cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, items_as_lines(items))


def items_as_lines(items: Iterable[Item]) -> str:
    """Items as JSONL that ``read_items`` reads back; of a prompt with turns the last one."""
    lines = []
    for item in items:
        row: dict[str, object] = {"prompt": last_turn(item.prompt), "target": item.answer}
        row |= {"family": item.family, "depth": item.depth, "task_id": item.id}
        if isinstance(item.verifier, ReferenceVerifier):
            row |= _references(item.verifier)
        elif item.family in tasks.names():
            row |= {"payload": item.question, "convention": item.variant}
        if item.reply_limit != _usual_limit(item.family, item.depth):
            row["reply_limit"] = item.reply_limit
        lines.append(json.dumps(row, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _references(verifier: ReferenceVerifier) -> dict[str, object]:
    """What a line says of its answers, and of their grader unless it is the usual one."""
    answers, grader = list(verifier.answers), verifier.grader
    row: dict[str, object] = {"target": answers if len(answers) > 1 else answers[0]}
    if grader != graders.build("exact"):
        row["grade"] = {"kind": graders.name_of(grader), **vars(grader)}
    return row


def _parse(line: str, where: str) -> Item:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object, got {line[:40]!r}")
    family, _, prompt = (_text(row, key, where) for key in ("family", "depth", "prompt"))
    depth = depth_of(row, where)
    target = row.get("target")
    answers = tuple(map(reference_answer, target if isinstance(target, list) else [target]))
    if not answers or "" in answers:
        hint = "; write it as the reply should be" if isinstance(target, bool) else ""
        raise DataError(
            f"{where}: expected text, a number or a list of these under 'target', "
            f"got {target!r:.60}{hint}"
        )
    identity = row.get("task_id")
    name = where if identity is None else str(identity)
    check_whole((prompt, family, depth, name, *answers), where)
    limit = row.get("reply_limit", _usual_limit(family, depth))
    if type(limit) is not int or limit < 1:
        raise DataError(
            f"{where}: expected a whole number from 1 under 'reply_limit', got {limit!r:.60}"
        )
    longest = max(len(answer.strip().encode()) for answer in answers) + 1
    task_item = _own_item(row, answers[0], where)
    if task_item is not None:
        return replace(task_item, id=name, prompt=prompt, reply_limit=max(limit, longest))
    try:
        grader = graders.build(row.get("grade", "exact"))
    except ConfigError as error:
        raise DataError(f"{where}: grade: {error}") from error
    item = Item(
        id=name,
        family=family,
        depth=depth,
        question=prompt,
        prompt=prompt,
        reply_limit=max(limit, longest),
        verifier=ReferenceVerifier(grader, answers),
        answer=answers[0],
    )
    check_gradable([(where, item)])
    return item


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(f"{where}: expected text under {key!r}, got {value!r:.60}")
    return value


def _usual_limit(family: str, depth: str) -> int:
    if family in tasks.names() and depth in tasks[family].depths:
        return tasks.build(family).reply_limit(depth)
    return DEFAULT_REPLY_LIMIT


def _own_item(row: Mapping[str, object], answer: str, where: str) -> Item | None:
    """The item of a line that this package wrote; None for a line of another origin."""
    question, variant = row.get("payload"), row.get("convention")
    family, depth = str(row["family"]), str(row["depth"])
    is_ours = isinstance(question, str) and "convention" in row  # others may have a payload too
    if not is_ours or family not in tasks.names():
        return None
    task = tasks.build(family)
    if depth not in task.depths or variant not in range(task.variants):
        raise DataError(
            f"{where}: expected a depth of {tuple(task.depths)} and a convention from 0 to "
            f"{task.variants - 1}"
        )
    try:
        item = task.item(str(question), depth, int(str(variant)))
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(f"{where}: {question!r} is no payload of {family}") from error
    if item.answer != answer:
        raise DataError(f"{where}: expected the target {item.answer!r}, got {answer!r}")
    return item


def some_of(items: Sequence[Item], most: int | None, seed: int = 0) -> list[Item]:
    """At most so many of the items, by draw, in their order; all of them for None."""
    if most is None or len(items) <= most:
        return list(items)
    indices = Draw(seed)("some of").permutation(len(items))[:most]
    return [items[index] for index in sorted(indices)]


def check_not_learned(items: Sequence[Item], path: Path) -> None:
    """Makes sure that no item was learned from.

    Raises:
        DataError: the prompt of one is in that file, or the file has no column ``prompt``.
    """
    about = str(path)
    rows = [row for _, row in rows_of_file(locate(about, about)[0], about)]
    prompts = {
        str(row["prompt"]).strip() for row in rows if isinstance(row, dict) and "prompt" in row
    }
    if not prompts:
        raise DataError(f"{path}: expected rows with a column 'prompt', found none")
    if overlap := prompts & {last_turn(item.prompt).strip() for item in items}:
        raise DataError(
            f"expected questions that were not learned from, got {len(overlap)} prompts of {path}, "
            f"such as {min(overlap)!r:.60}: take another part of the data"
        )


def in_style(items: Sequence[Item], style: PromptStyle) -> list[Item]:
    """Items asked as a run with this style asks them: line end, what the system says, and solved
    examples of their family. Items keep their own words.

    Raises:
        ConfigError: the style has examples, and none of the items is of a family that has some.
    """
    families = [tasks.build(name) for name in families_of(items) if name in tasks.names()]
    synthetic = tuple(task.in_style(style) for task in families if isinstance(task, SyntheticTask))
    if synthetic:
        mixture = TaskMixture(synthetic)
        return [mixture.as_asked(item) for item in items]
    if isinstance(style, FewShot):
        raise ConfigError(
            "--style few_shot: expected questions of a family that can make examples, got "
            f"{', '.join(families_of(items)):.60}: choose natural or terse"
        )
    before, end = () if style.system is None else (style.system,), style.line_end
    words = (item.prompt if item.prompt.endswith(end) else item.prompt + end for item in items)
    return [
        replace(item, prompt=in_turns(*before, prompt))
        for item, prompt in zip(items, words, strict=True)
    ]


def families_of(items: Sequence[Item]) -> list[str]:
    """The families that occur, in order of first appearance."""
    return list(dict.fromkeys(item.family for item in items))
