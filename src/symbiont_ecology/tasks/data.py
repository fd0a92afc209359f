"""Data of one's own as a task: ``{kind: file, name: trivia, path: trivia.jsonl}``.

Everything is read (``tasks.tables``) and checked before a model loads. A column may say who asks:
then right may be something else for everyone (``tasks.own_habitats``).
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.errors import ConfigError, DataError, EcologyWarning
from symbiont_ecology.files import Stamp
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks import Task, judge, task_sources
from symbiont_ecology.tasks.grading import Grader, ReferenceVerifier, graders
from symbiont_ecology.tasks.question_keys import QUESTION_KEYS, QuestionKeys
from symbiont_ecology.tasks.splits import Split, split_of
from symbiont_ecology.tasks.synthetic.family import DEPTHS
from symbiont_ecology.tasks.synthetic.styles import FewShot, PromptStyle
from symbiont_ecology.tasks.tables import (
    MOST_LINES,
    Row,
    as_written,
    check_whole,
    locate,
    no_column,
    rows_of_dataset,
    rows_of_file,
    too_many,
)
from symbiont_ecology.types import Item, in_turns

LEAST_REPLY_TOKENS = 64
"""Room for a reply, if the data do not say otherwise: a model may answer in a sentence."""
REASONED = "\n#### "
"""As in GSM8K: reasoning, then the final answer behind this mark on the last line."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LONGEST_NAME = 200
"""Characters in the name of somebody who asks."""
ASKER_END = "\t"
"""Between the habitat and the prompt in a question, since the same prompt may have other answers
elsewhere."""


@dataclass(frozen=True, slots=True)
class DataLine:
    """One prompt with its reference answers, any of which is right where it is asked."""

    depth: str
    prompt: str
    answers: tuple[str, ...]
    habitat: str = ""

    @property
    def question(self) -> str:
        """All there is to know of what is asked: the prompt, and who asks, if that matters."""
        return f"{self.habitat}{ASKER_END}{self.prompt}" if self.habitat else self.prompt


@dataclass(frozen=True, eq=False, repr=False)
class DataTask(Task):
    """Prompts as they stand, judged by a grader. The hash of the prompt decides the split.

    ``source`` says in messages where the lines come from. Two lines never have the same question.
    A prompt has the line end of its ``style``, and stands behind what that puts in front of it.
    """

    name: str
    lines: tuple[DataLine, ...]
    source: str
    grader: Grader
    tokens: int | None = None
    style: PromptStyle | None = None

    def __repr__(self) -> str:
        return f"<{self.source}: {len(self.lines)} lines>"

    @cached_property
    def depths(self) -> Sequence[str]:  # type: ignore[override]
        """The depths that occur: short, medium, long, and other words in the order of the lines."""
        words = dict.fromkeys(line.depth for line in self.lines)
        ordered = [depth for depth in DEPTHS if depth in words]
        return tuple(dict.fromkeys([*ordered, *words]))

    @property
    def group(self) -> str:
        """Data have no conventions to share."""
        return "data"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all lines in their order."""
        digest = hashlib.sha256()
        for line in self.lines:
            target = line.answers[0] if len(line.answers) == 1 else list(line.answers)
            digest.update(json.dumps([line.depth, line.question, target]).encode())
        return digest.hexdigest()

    @cached_property
    def habitats(self) -> Sequence[str]:
        """Who asks, in the order of the data; nobody, if they do not say."""
        return [name for name in dict.fromkeys(line.habitat for line in self.lines) if name]

    def part(self, depth: str, split: Split) -> Sequence[DataLine]:
        """The lines of a depth and split, in the order of the data."""
        return self._parts.get((depth, split), ())

    def in_style(self, style: PromptStyle) -> DataTask:
        """The same lines for a host that is asked in that style.

        Raises:
            ConfigError: an answer would end before its end, or examples would tell users what
                others want.
        """
        return _in_style(self, style)

    def prompt(self, question: str) -> str:
        """The prompt as it stands, with the line end that the style's own prompts have, behind
        what the style puts in front of it."""
        return in_turns(*self.turns_before(question), self._worded(question))

    def turns_before(self, question: str) -> tuple[str, ...]:
        """What the style puts in front of a question."""
        return () if self.style is None else self.style.before(self, question, self._worded)

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Any question of that depth."""
        lines = [line for line in self.lines if line.depth == depth]
        return lines[int(generator.integers(len(lines)))].question

    def answer(self, question: str) -> str:
        """The first reference answer."""
        return self._answers[question][0]

    def verify(self, question: str, reply: str) -> object:
        """Whether the grader accepts the reply for any of the reference answers."""
        return ReferenceVerifier(self.grader, self._answers[question])(reply)

    def item(self, question: str, depth: str, variant: int = 0) -> Item:
        """The item that asks a line."""
        verifier = ReferenceVerifier(self.grader, self._answers[question])
        habitat = self._parted(question)[0]
        return replace(super().item(question, depth, variant), verifier=verifier, habitat=habitat)

    def split_key(self, question: str) -> str:
        """The prompt without its line end."""
        return self._parted(question)[1].rstrip("\r\n")

    def split(self, line: DataLine) -> Split:
        """Whether a line trains, selects or is held out."""
        return split_of(self.name, self.split_key(line.question))

    def reply_limit(self, depth: str) -> int:
        """The setting, else enough for the longest answer at one token per byte."""
        return self.tokens or max(self._longest.get(depth, 0) + 1, LEAST_REPLY_TOKENS)

    def distinct(
        self, depth: str, count: int, generator: np.random.Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        """So many lines, or all that there are, in random order."""
        lines = self.part(depth, split)
        indices = generator.permutation(len(lines))[:count]
        return tuple(self.item(lines[index].question, depth) for index in indices)

    def valid_question(
        self, depth: str, generator: np.random.Generator, split: Split = "train"
    ) -> str:
        """A random question of that depth and split that may be asked.

        Raises:
            DataError: there is none, as far as draws tell.
        """
        lines = self.part(depth, split)
        if not lines:
            raise DataError(
                f"{self.source}: no {depth} prompt falls into the split {split!r}: add lines"
            )
        return lines[int(generator.integers(len(lines)))].question

    def _worded(self, question: str) -> str:
        prompt, end = self._parted(question)[1], "" if self.style is None else self.style.line_end
        return prompt if prompt.endswith(end) else prompt + end

    def _parted(self, question: str) -> tuple[str, str]:
        """Who asks, and the prompt."""
        habitat, _, prompt = question.partition(ASKER_END) if self.habitats else ("", "", question)
        return habitat, prompt

    @cached_property
    def _longest(self) -> Mapping[str, int]:
        """Bytes of the longest answer of each depth."""
        sizes: dict[str, int] = {}
        for line in self.lines:
            size = max(len(answer.encode()) for answer in line.answers)
            sizes[line.depth] = max(sizes.get(line.depth, 0), size)
        return sizes

    @cached_property
    def _answers(self) -> Mapping[str, tuple[str, ...]]:
        return {line.question: line.answers for line in self.lines}

    @cached_property
    def _parts(self) -> Mapping[tuple[str, Split], Sequence[DataLine]]:
        parts: dict[tuple[str, Split], list[DataLine]] = defaultdict(list)
        for line in self.lines:
            parts[line.depth, self.split(line)].append(line)
        return parts


@lru_cache(maxsize=16)
def _in_style(task: DataTask, style: PromptStyle) -> DataTask:
    """The same object each time, so that what it knows of its lines is found out once."""
    if isinstance(style, FewShot) and task.habitats:
        raise ConfigError(
            f"tasks.style: solved examples would tell the users of {task.source} what others "
            "want: choose another style"
        )
    for stop in style.stops:
        cut = next((text for line in task.lines for text in line.answers if stop in text), None)
        if cut is not None:
            raise ConfigError(
                f"tasks.style: answers end at {stop!r}, and {task.source} has it in the answer "
                f"{cut!r:.40}: set tasks.style.stop"
            )
    return replace(task, style=style)


@task_sources.register("file")
@dataclass(frozen=True)
class FileTasks:
    """Lines of a file (JSON, JSONL, CSV, TSV, Parquet) or a data set: a prompt and its answer.

    The prompt is asked as it stands, with the line end of the prompt style. The answer is a text, a
    number, or a list of these, any of which is right. Of reasoning that ends in ``#### answer``, as
    in GSM8K, it is the answer. A column ``depth`` says how hard a line is, in any word without a
    slash; a line without one is ``short``. The hash of name and prompt decides whether a line is in
    our train, selection or holdout split.
    """

    name: str  # of the task: letters, digits, dots, dashes
    path: str | None = None  # a JSON, JSONL, CSV, TSV or Parquet file, from the current folder
    dataset: str | None = None  # instead of a file: folder or hub name for the package datasets
    config: str | None = None  # configuration of the data set
    split: str | None = None  # the data set's own split, which ours are made from; None is train
    prompt: str = "prompt"  # column of the prompts
    target: str | None = None  # column of the answers; None is target, else completion
    grade: Spec | None = None  # symbiont list graders; None is what question files say, else exact
    reply_tokens: PositiveInt | None = None  # longest reply; None: as the file says, else 64
    habitat: str | None = None  # column that says who asks, for tasks.habitats

    def __post_init__(self) -> None:
        check_name(self.name)
        if (self.path is None) == (self.dataset is None):
            raise ValueError("expected either path, a file, or dataset, a name")
        if self.path is not None and (self.config, self.split) != (None, None):
            raise ValueError("config and split belong to a dataset; a file has neither")

    def __str__(self) -> str:
        return f"task {self.name!r} ({self.path or f'data set {self.dataset}'})"

    def task(self) -> DataTask:
        """The lines; read once, and again when the file has changed."""
        knobs = json.dumps(vars(self))  # text, since a grader may be a mapping, which has no hash
        if self.path is None:
            return _read(knobs, None, ())
        path, stamp = locate(self.path, str(self))
        return _read(knobs, path, stamp)


def check_name(name: str) -> None:
    """Whether a task may be called so.

    Raises:
        ValueError: it has other letters, or too many.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name: expected letters, digits, dots and dashes, at most 64, got {name!r:.80}"
        )


@lru_cache(maxsize=16)
def _read(knobs: str, path: Path | None, stamp: Stamp) -> DataTask:
    """The checked lines; ``knobs`` are the source's in JSON, ``stamp`` changes with a file."""
    source = FileTasks(**json.loads(knobs))
    lines: dict[str, tuple[str, DataLine]] = {}
    columns: dict[str, None] = {}
    keys = QuestionKeys()
    used = {source.prompt, "depth", *([source.habitat] if source.habitat else [])}
    for where, row in _rows(source, path):
        line = _line(row, source, where)
        if isinstance(row, Mapping):
            columns |= dict.fromkeys(map(str, row))
            used.add(_target_column(row, source))
            keys.add(row)
        add_line(lines, line, str(source), where)
    if not lines:
        raise DataError(
            f"{source}: no lines; expected one object per line, with a prompt and a target"
        )
    used |= QUESTION_KEYS if keys.is_seen else set()
    if ignored := [name for name in columns if name not in used]:
        warnings.warn(
            f"{source}: columns that are not used: {', '.join(ignored)}",
            EcologyWarning,
            stacklevel=2,
        )
    task_lines = tuple(line for _, line in lines.values())
    grader = graders.build(source.grade or keys.grade(str(source)))
    tokens = source.reply_tokens or keys.reply_limit
    task = DataTask(source.name, task_lines, str(source), grader, tokens=tokens)
    check_gradable(
        (
            (f"{source} {where}", task.item(line.question, line.depth))
            for where, line in lines.values()
        )
    )
    return task


def add_line(
    lines: dict[str, tuple[str, DataLine]], line: DataLine, about: str, where: str
) -> None:
    """Adds a line to others, which are known by their questions and come with where they stand; one
    that is there already is left out.

    Raises:
        DataError: the prompt is there with another target, or there are too many lines.
    """
    place, earlier = lines.setdefault(line.question.rstrip("\r\n"), (where, line))
    if earlier.answers != line.answers:
        raise DataError(
            f"{about} {where}: the prompt of {place} with another target, "
            f"{line.answers[0]!r:.40} and not {earlier.answers[0]!r:.40}: keep one of them"
        )
    if len(lines) > MOST_LINES:
        raise DataError(too_many(about))


def check_gradable(items: Iterable[tuple[str, Item]]) -> None:
    """Makes sure that graders can use the answers of items, by the verdict on an empty reply.

    Each item comes with the words that say where it stands.

    Raises:
        DataError: a grader fails, as ``number`` does if an answer is no number.
    """
    places, asked = zip(*items, strict=True)
    judgements = judge((item, "") for item in asked)
    for where, item, judgement in zip(places, asked, judgements, strict=True):
        if judgement.fault:
            raise DataError(
                f"{where}: the grader cannot use the answer {item.answer!r:.40}: {judgement.fault}"
            )


def _line(row: object, source: FileTasks, where: str) -> DataLine:
    if not isinstance(row, Mapping):
        raise DataError(f"{source} {where}: expected an object, got {row!r:.40}")
    prompt = row.get(source.prompt)
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(_no_text(source, where, row, "prompt"))
    target = row.get(_target_column(row, source))
    answers = (
        tuple(map(reference_answer, target))
        if isinstance(target, list)
        else (reference_answer(target),)
    )
    if not answers or "" in answers:
        raise DataError(_no_text(source, where, row, "target"))
    habitat = habitat_of(row, source.habitat, f"{source} {where}") if source.habitat else ""
    depth = depth_of(row, f"{source} {where}")
    check_whole((prompt, habitat, depth, *answers), f"{source} {where}")
    return DataLine(depth, prompt, answers, habitat)


def depth_of(row: Mapping[Any, object], where: str) -> str:
    """How hard a row says that it is.

    Raises:
        DataError: with a slash, which parts family and depth in the names of cells.
    """
    depth = row.get("depth")
    if isinstance(depth, str) and "/" in depth:
        raise DataError(f"{where}: expected a depth without a slash, got {depth!r:.40}")
    return depth if isinstance(depth, str) and depth else "short"


def habitat_of(row: Mapping[object, object], column: str, where: str) -> str:
    """Who asks, as a row says it: a text or a whole number.

    Raises:
        DataError: it says nothing, or nothing that can be a name.
    """
    name = as_written(row.get(column))
    text = str(name).strip() if isinstance(name, str | int) and not isinstance(name, bool) else ""
    if not text or not text.isprintable() or len(text) > LONGEST_NAME:
        raise DataError(
            f"{where}: expected who asks, a line of text or a whole number, under {column!r}, "
            f"got {name!r:.40}"
        )
    return text


def _target_column(row: Mapping[object, object], source: FileTasks) -> str:
    """Where a line has its answers."""
    is_completion = "completion" in row and "target" not in row
    return source.target or ("completion" if is_completion else "target")


def reference_answer(target: object) -> str:
    """A reference answer as text; empty if it is none."""
    target = as_written(target)
    if isinstance(target, int | float) and not isinstance(target, bool):
        return json.dumps(target)
    if not isinstance(target, str):
        return ""
    reasoning, _, final = target.strip().rpartition(REASONED)
    return (final if reasoning and "\n" not in final else target).strip()


def _no_text(source: FileTasks, where: str, row: Mapping[object, object], knob: str) -> str:
    """What is wrong with a cell of the table, and which columns there are."""
    column = source.prompt if knob == "prompt" else _target_column(row, source)
    if column in row:
        value = row[column]
        hint = "; write it as the reply should be" if isinstance(value, bool) else ""
        kinds = "text" if knob == "prompt" else "text, a number or a list of these"
        return f"{source} {where}: expected {kinds} under {column!r}, got {value!r:.40}{hint}"
    return f"{source} {where}: {no_column(column, row)}: set {knob} to one of these"


def _rows(source: FileTasks, path: Path | None) -> Iterable[Row]:
    if path is not None:
        return rows_of_file(path, str(source))
    assert source.dataset is not None  # FileTasks has checked it
    return rows_of_dataset(source.dataset, source.config, source.split or "train", str(source))
