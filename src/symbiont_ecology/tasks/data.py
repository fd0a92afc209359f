"""Data of one's own as a task: ``{kind: file, name: trivia, path: trivia.jsonl}``.

JSONL is read here, Parquet by pyarrow, data sets of the hub by ``datasets`` from version 4, which
runs no code of theirs. Nothing is unpickled. Everything is read and checked before a model loads.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from pydantic import PositiveInt

from symbiont_ecology.config import find_data
from symbiont_ecology.errors import DataError, EcologyWarning, MissingExtraError
from symbiont_ecology.registry import Spec, did_you_mean
from symbiont_ecology.tasks import Task, task_sources
from symbiont_ecology.tasks.grading import Grader, graders
from symbiont_ecology.tasks.splits import Split, split_of
from symbiont_ecology.types import Item

LARGEST_MB = 256
"""Of a file, unpacked; a larger one would be held in memory several times over."""
MOST_LINES = 1_000_000
LEAST_REPLY_TOKENS = 64
"""Room for a reply, if the data do not say otherwise: a model may answer in a sentence."""
REASONED = "\n#### "
"""As in GSM8K: reasoning, then the final answer behind this mark on the last line."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Row = tuple[str, object]
"""Where a row stands, such as ``line 7``, and what was read there."""


@dataclass(frozen=True, slots=True)
class DataLine:
    """One prompt with its reference answers, any of which is right."""

    depth: str
    prompt: str
    answers: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DataTask(Task):
    """Prompts as they stand, judged by a grader. The hash of the prompt decides the split.

    ``source`` says in messages where the lines come from. Two lines never have the same prompt.
    """

    name: str
    lines: tuple[DataLine, ...]
    source: str
    grader: Grader
    tokens: int | None = None

    def __repr__(self) -> str:
        return f"<{self.source}: {len(self.lines)} lines>"

    @cached_property
    def depths(self) -> Sequence[str]:  # type: ignore[override]
        """The depths that occur, in the order of the lines."""
        return tuple(dict.fromkeys(line.depth for line in self.lines))

    @property
    def group(self) -> str:
        """Data have no conventions to share."""
        return "data"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all lines in their order."""
        hashed = hashlib.sha256()
        for line in self.lines:
            target = line.answers[0] if len(line.answers) == 1 else list(line.answers)
            hashed.update(json.dumps([line.depth, line.prompt, target]).encode())
        return hashed.hexdigest()

    def part(self, depth: str, split: Split) -> Sequence[DataLine]:
        """The lines of a depth and split, in the order of the data."""
        return self._parts.get((depth, split), ())

    def draw(self, depth: str, generator: np.random.Generator) -> str:
        """Any prompt of that depth."""
        lines = [line for line in self.lines if line.depth == depth]
        return lines[int(generator.integers(len(lines)))].prompt

    def answer(self, question: str) -> str:
        """The first reference answer."""
        return self._answers[question][0]

    def verify(self, question: str, reply: str) -> object:
        """Whether the grader accepts the reply for any of the reference answers."""
        return any_right(self.grader, self._answers[question], reply)

    def split_key(self, question: str) -> str:
        """The prompt without its line end."""
        return question.rstrip("\r\n")

    def reply_limit(self, depth: str) -> int:
        """The setting, else enough for the longest answer at one token per byte."""
        return self.tokens or max(self._longest.get(depth, 0) + 1, LEAST_REPLY_TOKENS)

    def distinct(
        self, depth: str, count: int, generator: np.random.Generator, *, split: Split = "train"
    ) -> tuple[Item, ...]:
        """So many lines, or all that there are, in random order."""
        lines = self.part(depth, split)
        chosen = generator.permutation(len(lines))[:count]
        return tuple(self.item(lines[index].prompt, depth) for index in chosen)

    def _question(self, depth: str, generator: np.random.Generator, split: Split) -> str:
        lines = self.part(depth, split)
        if not lines:
            raise DataError(
                f"{self.source}: no {depth} prompt falls into the split {split!r}: add lines"
            )
        return lines[int(generator.integers(len(lines)))].prompt

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
        return {line.prompt: line.answers for line in self.lines}

    @cached_property
    def _parts(self) -> Mapping[tuple[str, Split], Sequence[DataLine]]:
        parts: dict[tuple[str, Split], list[DataLine]] = defaultdict(list)
        for line in self.lines:
            split = split_of(self.name, self.split_key(line.prompt))
            parts[line.depth, split].append(line)
        return parts


@task_sources.register("file")
@dataclass(frozen=True)
class FileTasks:
    """Lines of a JSONL or Parquet file, or of a data set, each with a prompt and its answer.

    The prompt is asked as it stands. The answer is a text, a number, or a list of these, any of
    which is right. Of reasoning that ends in ``#### answer``, as in GSM8K, it is the answer. A
    column ``depth`` says how hard a line is, in any word; a line without one is ``short``. The hash
    of name and prompt decides whether a line is in our train, selection or holdout split.
    """

    name: str  # of the task: letters, digits, dots, dashes
    path: str | None = None  # .jsonl or .parquet file, from where the command is typed
    dataset: str | None = None  # instead of a file: folder or hub name for the package datasets
    config: str | None = None  # configuration of the data set
    split: str | None = None  # the data set's own split, which ours are made from; None is train
    prompt: str = "prompt"  # column of the prompts
    target: str | None = None  # column of the answers; None is target, else completion
    grade: Spec = "exact"  # how a reply is judged: symbiont list graders
    reply_tokens: PositiveInt | None = None  # longest reply; None is 64, or the longest answer

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                "name: expected letters, digits, dots and dashes, at most 64, "
                f"got {self.name!r:.80}"
            )
        if (self.path is None) == (self.dataset is None):
            raise ValueError("expected either path, a file, or dataset, a name")
        if self.path is not None and (self.config, self.split) != (None, None):
            raise ValueError("config and split belong to a dataset; a file has neither")

    def __str__(self) -> str:
        return f"task {self.name!r} ({self.path or f'data set {self.dataset}'})"

    def task(self) -> DataTask:
        """The lines; read once, and again when the file has changed."""
        if self.path is None:
            return _read(self, None, ())
        path = find_data(Path(self.path))
        try:
            about = path.stat()
        except OSError as error:
            raise DataError(
                f"{self}: no such file ({error.strerror}); a path begins where the command is typed"
            ) from error
        return _read(self, path, (about.st_mtime_ns, about.st_size, about.st_ino))


def any_right(grader: Grader, answers: Sequence[str], reply: str) -> object:
    """The best verdict of a grader over several reference answers."""
    best: object = False
    for answer in answers:
        verdict = grader(reply, answer)
        if not isinstance(verdict, bool | int | float):
            return verdict  # nonsense, which the boundary around verifiers names
        best = max(best, verdict) if isinstance(best, bool | int | float) else best
    return best


@lru_cache(maxsize=16)
def _read(source: FileTasks, path: Path | None, stamp: tuple[int, ...]) -> DataTask:
    """The checked lines; ``stamp`` is what changes with a file."""
    lines: dict[str, tuple[str, DataLine]] = {}
    columns: dict[str, None] = {}
    for where, row in _rows(source, path):
        line = _line(row, source, where)
        columns |= dict.fromkeys(map(str, row)) if isinstance(row, Mapping) else {}
        before, known = lines.setdefault(line.prompt.rstrip("\r\n"), (where, line))
        if known.answers != line.answers:
            raise DataError(
                f"{source} {where}: the prompt of {before} with another target, "
                f"{line.answers[0]!r:.40} and not {known.answers[0]!r:.40}: keep one of them"
            )
        if len(lines) > MOST_LINES:
            raise DataError(_too_many(source, "more"))
    if not lines:
        raise DataError(
            f"{source}: no lines; expected one object per line, with a prompt and a target"
        )
    target = source.target or ("target" if "target" in columns else "completion")
    if ignored := [name for name in columns if name not in (source.prompt, target, "depth")]:
        warnings.warn(
            f"{source}: columns that are not used: {', '.join(ignored)}",
            EcologyWarning,
            stacklevel=2,
        )
    kept = tuple(line for _, line in lines.values())
    return DataTask(
        source.name, kept, str(source), graders.build(source.grade), tokens=source.reply_tokens
    )


def _line(row: object, source: FileTasks, where: str) -> DataLine:
    if not isinstance(row, Mapping):
        raise DataError(f"{source} {where}: expected an object, got {row!r:.40}")
    prompt = row.get(source.prompt)
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(_no_text(source, where, row, "prompt"))
    column = source.target or ("target" if "target" in row else "completion")
    target = row.get(column)
    answers = (
        tuple(map(reference_answer, target))
        if isinstance(target, list)
        else (reference_answer(target),)
    )
    if not answers or "" in answers:
        raise DataError(_no_text(source, where, row, "target"))
    try:
        "".join((prompt, *answers)).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{source} {where}: half a character, {error.object[error.start]!a}"
        ) from error
    depth = row.get("depth")
    return DataLine(depth if isinstance(depth, str) and depth else "short", prompt, answers)


def reference_answer(target: object) -> str:
    """A reference answer as text; empty if it is none."""
    if isinstance(target, int | float) and not isinstance(target, bool):
        return json.dumps(target)
    if not isinstance(target, str):
        return ""
    reasoning, _, final = target.strip().rpartition(REASONED)
    return (final if reasoning and "\n" not in final else target).strip()


def _no_text(source: FileTasks, where: str, row: Mapping[object, object], knob: str) -> str:
    """What is wrong with a cell of the table, and which columns there are."""
    column = (source.prompt if knob == "prompt" else source.target) or "target"
    if column in row:
        value = row[column]
        hint = "; write it as the reply should be" if isinstance(value, bool) else ""
        kinds = "text" if knob == "prompt" else "text, a number or a list of these"
        return f"{source} {where}: expected {kinds} under {column!r}, got {value!r:.40}{hint}"
    names = [str(name) for name in row]
    hint = did_you_mean(column, names)
    known = ", ".join(names) or "none"
    return f"{source} {where}: no column {column!r};{hint} set {knob} to one of: {known:.200}"


def _too_many(source: FileTasks, count: str) -> str:
    part = "" if source.path else f", such as split='{source.split or 'train'}[:20000]'"
    return f"{source}: expected at most {MOST_LINES} lines, got {count}: take a part of it{part}"


def _rows(source: FileTasks, path: Path | None) -> Iterable[Row]:
    if path is None:
        return _rows_of_dataset(source)
    if not path.is_file():
        raise DataError(f"{source}: expected a file")
    if path.stat().st_size > LARGEST_MB * 2**20:
        raise DataError(
            f"{source}: the file has {path.stat().st_size / 2**20:.0f} MB, at most {LARGEST_MB} "
            "are read: take a part of it"
        )
    if path.suffix in (".jsonl", ".ndjson"):
        return _rows_of_jsonl(path, source)
    if path.suffix == ".parquet":
        return _rows_of_parquet(path, source)
    raise DataError(f"{source}: expected a file that ends in .jsonl or .parquet")


def _rows_of_jsonl(path: Path, source: FileTasks) -> Iterator[Row]:
    try:
        # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
        texts = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: cannot be read: {error}") from error
    for number, text in enumerate(texts, 1):
        if text.strip():
            try:
                yield f"line {number}", json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{source} line {number}: not JSON ({error})") from error


def _rows_of_parquet(path: Path, source: FileTasks) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file", "pyarrow", "data") from error
    try:
        with parquet.ParquetFile(path) as file:
            about = file.metadata
            if about.num_rows > MOST_LINES:
                raise DataError(_too_many(source, str(about.num_rows)))
            groups = (about.row_group(index) for index in range(about.num_row_groups))
            size = sum(group.total_byte_size for group in groups) / 2**20
            if size > LARGEST_MB:
                raise DataError(
                    f"{source}: unpacked {size:.0f} MB, at most {LARGEST_MB}: take a part of it"
                )
            rows = file.read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{source}: not a Parquet file that can be read ({error!s:.200})"
        ) from error
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _rows_of_dataset(source: FileTasks) -> Iterator[Row]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("a data set", "datasets", "data") from error
    datasets.disable_progress_bars()
    try:
        # Since version 4 a data set cannot run code; pyproject.toml asks for that version.
        rows = datasets.load_dataset(source.dataset, source.config, split=source.split or "train")
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{source}: cannot be loaded: {error!s:.300}") from error
    if rows.num_rows > MOST_LINES:
        raise DataError(_too_many(source, str(rows.num_rows)))
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
