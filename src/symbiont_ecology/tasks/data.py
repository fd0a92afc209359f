"""Data of one's own as a task: ``{kind: file, name: trivia, path: trivia.jsonl}``.

Everything is read (``tasks.tables``) and checked before a model loads. A column may say who asks:
then right may be something else for everyone (``DataUsers``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from numpy.random import Generator
from pydantic import AfterValidator, PositiveInt

from symbiont_ecology.base.errors import ConfigError, DataError
from symbiont_ecology.base.files import Stamp
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item
from symbiont_ecology.tasks import Task, judge, task_sources
from symbiont_ecology.tasks.config import UsersConfig
from symbiont_ecology.tasks.grading import Grader, ReferenceVerifier, graders
from symbiont_ecology.tasks.splits import Split, split_of
from symbiont_ecology.tasks.synthetic.family import DEPTHS
from symbiont_ecology.tasks.synthetic.styles import FewShot, PromptStyle
from symbiont_ecology.tasks.tables import (
    as_written,
    check_columns,
    check_whole,
    locate,
    name_in,
    rows_of_file,
    text_in,
)
from symbiont_ecology.tasks.users import END, Users

MIN_REPLY_TOKENS = 64
"""Room for a reply, if the data do not say otherwise: a model may answer in a sentence."""
REASONED = "\n#### "
"""As in GSM8K: reasoning, then the final answer behind this mark on the last line."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ASKER_END = "\t"
"""Between user and prompt in a question: the same prompt may have other answers elsewhere."""


def _checked(name: str) -> str:
    if NAME.fullmatch(name):
        return name
    raise ValueError(f"expected letters, digits, dots and dashes, at most 64, got {name!r:.80}")


TaskName = Annotated[str, AfterValidator(_checked)]
"""Name of a task, as a knob of a source."""


@dataclass(frozen=True, slots=True)
class DataLine:
    """One prompt with its reference answers, any of which is right where it is asked."""

    depth: str
    prompt: str
    answers: tuple[str, ...]
    user: str = ""

    @property
    def question(self) -> str:
        """All there is to know of what is asked: the prompt, and who asks, if that matters."""
        return f"{self.user}{ASKER_END}{self.prompt}" if self.user else self.prompt


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

    @cached_property
    def depths(self) -> Sequence[str]:  # type: ignore[override]
        """The depths that occur: short, medium, long, and other words in the order of the lines."""
        words = dict.fromkeys(line.depth for line in self.lines)
        return tuple(dict.fromkeys([*(depth for depth in DEPTHS if depth in words), *words]))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all lines in their order."""
        digest = hashlib.sha256()
        for line in self.lines:
            target = line.answers[0] if len(line.answers) == 1 else list(line.answers)
            digest.update(json.dumps([line.depth, line.question, target]).encode())
        return digest.hexdigest()

    @cached_property
    def users(self) -> Sequence[str]:
        """Users in the order of the data; none, if these do not say who asks."""
        return list(dict.fromkeys(line.user for line in self.lines if line.user))

    def part(self, depth: str, split: Split) -> Sequence[DataLine]:
        """Return the lines of a depth and split, in the order of the data."""
        return self._parts.get((depth, split), ())

    def in_style(self, style: PromptStyle) -> DataTask:
        """Return the same lines for a host that is asked in that style.

        Raises:
            ConfigError: an answer would end before its end, or examples would tell users what
                others want.
        """
        return _in_style(self, style)

    def turns_before(self, question: str) -> tuple[str, ...]:
        return () if self.style is None else self.style.before(self, question)

    def draw(self, depth: str, generator: Generator) -> str:
        return self.valid_question(depth, generator)

    def answer(self, question: str) -> str:
        return next(iter(self._answers[question]), "")

    def verify(self, question: str, reply: str) -> object:
        return ReferenceVerifier(self.grader, self._answers[question])(reply)

    def item(self, question: str, depth: str) -> Item:
        verifier = ReferenceVerifier(self.grader, self._answers[question])
        (user, _), item = self._parted(question), super().item(question, depth)
        return replace(item, verifier=verifier, user=user)

    def split_key(self, question: str) -> str:
        return self._parted(question)[1].rstrip("\r\n")

    def split(self, line: DataLine) -> Split:
        """Return the split that a line trains, selects or is held out in."""
        return split_of(self.name, self.split_key(line.question))

    def reply_limit(self, depth: str) -> int:
        return self.tokens or max(self._longest.get(depth, 0) + 1, MIN_REPLY_TOKENS)

    def distinct(
        self, depth: str, count: int, generator: Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        lines = self.part(depth, split)
        indices = generator.permutation(len(lines))[:count]
        return tuple(self.item(lines[index].question, depth) for index in indices)

    def valid_question(self, depth: str, generator: Generator, split: Split = "train") -> str:
        lines = self.part(depth, split)
        if not lines:
            raise DataError(
                f"{self.source}: no {depth} prompt falls into the split {split!r}: add lines"
            )
        return lines[int(generator.integers(len(lines)))].question

    def worded(self, question: str) -> str:
        prompt = self._parted(question)[1]
        end = "" if self.style is None else self.style.line_end
        return prompt if prompt.endswith(end) else prompt + end

    def _parted(self, question: str) -> tuple[str, str]:
        """Return who asks, and the prompt."""
        user, _, prompt = question.partition(ASKER_END) if self.users else ("", "", question)
        return user, prompt

    @cached_property
    def _longest(self) -> Mapping[str, int]:
        """Bytes of the longest answer of each depth."""
        sizes = defaultdict[str, int](int)
        for line in self.lines:
            for answer in line.answers:
                sizes[line.depth] = max(sizes[line.depth], len(answer.encode()))
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
    """Return the same object each time: what it knows of its lines is found out once."""
    if isinstance(style, FewShot) and task.users:
        raise ConfigError(
            f"tasks.style: solved examples would tell the users of {task.source} what others "
            "want: choose another style"
        )
    answers = [answer for line in task.lines for answer in line.answers]
    for stop in style.stops:
        if cut := next((answer for answer in answers if stop in answer), None):
            raise ConfigError(
                f"tasks.style: answers end at {stop!r}, and {task.source} has it in the answer "
                f"{cut!r:.40}: set tasks.style.stop"
            )
    return replace(task, style=style)


@task_sources.register("file")
@dataclass(frozen=True)
class FileTasks:
    """Lines of a file (JSON, JSONL, CSV, TSV, Parquet), each with a prompt and its answer.

    The prompt is asked as it stands, with the line end of the prompt style. The answer is a text, a
    number, or a list of these, any of which is right. Of reasoning that ends in ``#### answer``, as
    in GSM8K, it is the answer. A column ``depth`` says how hard a line is, in any word without a
    slash; a line without one is ``short``. The hash of name and prompt decides whether a line is in
    our train, selection or holdout split. Files of questions, whose lines have a ``family``, also
    say how they are judged (``grade``) and how long replies may be (``reply_limit``).
    """

    name: TaskName  # of the task: letters, digits, dots, dashes
    path: str  # a JSON, JSONL, CSV, TSV or Parquet file, from the current folder
    prompt: str = "prompt"  # column of the prompts
    target: str | None = None  # column of the answers; None is target, else completion
    grade: Spec | None = None  # symbiont list graders; None is what question files say, else exact
    reply_tokens: PositiveInt | None = None  # longest reply; None: as the file says, else 64
    user: str | None = None  # column that says who asks, for tasks.users
    renamed: ClassVar[dict[str, str]] = {"habitat": "user"}

    def __str__(self) -> str:
        return f"task {self.name!r} ({self.path})"

    def task(self) -> DataTask:
        """Return the lines; read once, and again when the file has changed."""
        knobs = json.dumps(vars(self))  # text, since a grader may be a mapping, which has no hash
        return _read(knobs, *locate(self.path, str(self)))


@lru_cache(maxsize=16)
def _read(knobs: str, path: Path, stamp: Stamp) -> DataTask:
    """Return the checked lines; ``knobs`` are the source's in JSON, ``stamp`` changes with the
    file."""
    source = FileTasks(**json.loads(knobs))
    about, user = str(source), source.user
    lines: dict[str, tuple[str, DataLine]] = {}
    grades, limits = list[Spec](), list[int]()
    for place, row in rows_of_file(path, about):
        where = f"{about} {place}"
        is_completion = "completion" in row and "target" not in row
        target = source.target or ("completion" if is_completion else "target")
        asker = "" if user is None else name_in(row, user, where)
        add_line(lines, line_of(row, source.prompt, target, where, asker), about, place)
        if isinstance(row.get("family"), str):
            limit = row.get("reply_limit")
            grades.append(row.get("grade", "exact"))
            limits += [limit] if type(limit) is int else []
    if not lines:
        raise DataError(
            f"{about}: no lines; expected one object per line, with a prompt and a target"
        )
    grade = source.grade or next(iter(grades), "exact")
    if not source.grade and any(other != grade for other in grades):
        raise DataError(f"{about}: expected lines that are graded alike: set grade")
    grader = graders.build(grade)
    tokens = source.reply_tokens or max(limits, default=None)
    places, task_lines = zip(*lines.values(), strict=True)
    task = DataTask(source.name, task_lines, about, grader, tokens)
    check_gradable(
        (f"{about} {place}", task.item(line.question, line.depth))
        for place, line in zip(places, task_lines, strict=True)
    )
    return task


def add_line(
    lines: dict[str, tuple[str, DataLine]], line: DataLine, about: str, where: str
) -> None:
    """Add a line to others, which are known by their questions and come with where they stand; one
    that is there already is left out.

    Raises:
        DataError: the prompt is there with another target.
    """
    place, earlier = lines.setdefault(line.question.rstrip("\r\n"), (where, line))
    if earlier.answers != line.answers:
        raise DataError(
            f"{about} {where}: the prompt of {place} with another target, "
            f"{line.answers[0]!r:.40} and not {earlier.answers[0]!r:.40}: keep one of them"
        )


def check_gradable(items: Iterable[tuple[str, Item]]) -> None:
    """Make sure that graders can use the answers of items, by the verdict on an empty reply.

    Each item comes with the words that say where it stands.

    Raises:
        DataError: a grader fails, as ``number`` does if an answer is no number.
    """
    asked = list(items)
    judgements = judge((item, "") for _, item in asked)
    for (where, item), judgement in zip(asked, judgements, strict=True):
        if judgement.fault:
            raise DataError(
                f"{where}: the grader cannot use the answer {item.answer!r:.40}: {judgement.fault}"
            )


def check_splits(task: DataTask, depths: tuple[str, ...]) -> None:
    """Refuse data without lines of every split at some depth.

    Raises:
        DataError: a split has none.
    """
    for depth in depths:
        counts = {split: len(task.part(depth, split)) for split in get_args(Split)}
        if not all(counts.values()):
            parts = ", ".join(f"{count} {split}" for split, count in counts.items())
            raise DataError(
                f"{task.source} is too small: of its {sum(counts.values())} {depth} lines {parts}, "
                "and each split needs one; about 7, 1 and 2 of 10 fall to them, so 50 lines do"
            )


@lru_cache(maxsize=16)
def check_apart(data: tuple[DataTask, ...]) -> None:
    """Refuse a prompt that two tasks have: it could train as the one, be held out as the
    other.

    Raises:
        DataError: there is one.
    """
    owner: dict[str, DataTask] = {}
    for task in data:
        for line in task.lines:
            first = owner.setdefault(task.split_key(line.question), task)
            if first is not task:
                raise DataError(
                    f"{task.source} and {first.source} have the prompt {line.prompt!r:.60} in "
                    "common, which may be in train here and in holdout there: take it out of one"
                )


def line_of(
    row: Mapping[str, Any], prompt: str, target: str, where: str, user: str = ""
) -> DataLine:
    """Return a row as a line; ``prompt`` and ``target`` are its columns.

    Raises:
        DataError: a column is missing or cannot be used; ``where`` begins the message.
    """
    for name, column in (("prompt", prompt), ("target", target)):
        check_columns(row, [column], where, f"set {name} to one of these")
    words, cell = text_in(row, prompt, where), row[target]
    answers = tuple(map(reference_answer, cell if isinstance(cell, list) else [cell]))
    if not answers or "" in answers:
        raise DataError(
            f"{where}: expected text, a number or a list of these under {target!r}, got "
            f"{cell!r:.40}: write it as the reply should be"
        )
    depth = row.get("depth")
    depth = depth if isinstance(depth, str) and depth else "short"
    if "/" in depth:  # which parts family and depth in the names of cells
        raise DataError(f"{where}: expected a depth without a slash, got {depth!r:.40}")
    check_whole((words, user, depth, *answers), where)
    return DataLine(depth, words, answers, user)


def reference_answer(target: object) -> str:
    """Return a reference answer as text; empty if it is none."""
    target = as_written(target)
    if type(target) in (int, float):
        return json.dumps(target)
    if not isinstance(target, str):
        return ""
    reasoning, _, final = target.strip().rpartition(REASONED)
    return (final if reasoning and "\n" not in final else target).strip()


@dataclass(frozen=True)
class DataUsers(Users):
    """Users who ask the lines of data: as often as they have lines there, in random order."""

    config: UsersConfig
    tasks: tuple[DataTask, ...]
    seed: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.users))

    def questions(self, generation: int) -> tuple[Item, ...]:
        lines, generator = self._training, Draw(self.seed, generation)("habitats", "lines")
        places = generator.integers(len(lines), size=self.config.questions)
        chosen = [lines[place] for place in places]
        return tuple(task.item(line.question, line.depth) for task, line in chosen)

    def drawn(
        self, per_user: int, seed: int, split: Split, generation: int = END
    ) -> tuple[Item, ...]:
        lines = self._lines(split)
        generator = Draw(seed)("habitats", "drawn", split)
        counts, items = Counter[str](), list[Item]()
        for task, line in (lines[place] for place in generator.permutation(len(lines))):
            counts[line.user] += 1
            if counts[line.user] <= per_user:
                items.append(task.item(line.question, line.depth))
        return tuple(items)

    @cached_property
    def _training(self) -> list[tuple[DataTask, DataLine]]:
        return self._lines("train")

    def _lines(self, split: Split) -> list[tuple[DataTask, DataLine]]:
        return [
            (task, line)
            for task in self.tasks
            for depth in task.depths
            for line in task.part(depth, split)
        ]
