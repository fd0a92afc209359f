"""Prompts and gold targets that somebody wrote: ``{kind: file, name: trivia, path: trivia.jsonl}``.

JSONL is read by ourselves, Parquet by pyarrow, data sets of the hub by ``datasets`` from version 4,
which runs no code of theirs. Nothing is unpickled. All of it is read and checked before a model is
loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from symbiont_ecology.config import find_data
from symbiont_ecology.errors import DataError, MissingExtraError
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.tasks import WrittenFamily, task_sources
from symbiont_ecology.tasks.family import DataLine
from symbiont_ecology.types import DEPTHS

LARGEST_MB = 256
"""Of a file, unpacked; larger ones would be held in memory several times over."""
MOST_LINES = 1_000_000
REASONED = "\n#### "
"""As in GSM8K: reasoning, then the final answer behind this mark on the last line."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@task_sources.register("file")
@dataclass(frozen=True)
class FileTasks:
    """Lines of a JSONL or Parquet file, or of a data set, each with a prompt and its gold target.

    The prompt is asked as it stands; a reply is right if its final answer equals the target. A
    target may be a whole number; of reasoning that ends in ``#### answer``, as in GSM8K, it is the
    answer. A column ``depth`` that says short, medium or long is believed, any other line is short.
    The hash of name and prompt decides whether a line is in our train, selection or holdout split.
    """

    name: str  # of the family: letters, digits, dots, dashes
    path: str | None = None  # .jsonl or .parquet file, from where the command is typed
    dataset: str | None = None  # instead of a file: folder or hub name for the package datasets
    config: str | None = None  # configuration of the data set
    split: str | None = None  # the data set's own split, which ours are made from; None is train
    prompt: str = "prompt"  # column of the prompts
    target: str | None = None  # column of the gold targets; None is target, else completion

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name: expected letters, digits, dots and dashes, at most 64, got {self.name!r:.80}"
            )
        if (self.path is None) == (self.dataset is None):
            raise ValueError("expected either path, a file, or dataset, a name")
        if self.path is not None and (self.config, self.split) != (None, None):
            raise ValueError("config and split belong to a dataset; a file has neither")

    def __str__(self) -> str:
        return f"family {self.name!r} ({self.path or f'data set {self.dataset}'})"

    def family(self) -> WrittenFamily:
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


@lru_cache(maxsize=16)
def _read(source: FileTasks, path: Path | None, stamp: tuple[int, ...]) -> WrittenFamily:
    """The checked lines; ``stamp`` is what changes with a file."""
    if path is None:
        rows: Iterable[tuple[str, Any]] = _rows_of_dataset(source)
    elif not path.is_file():
        raise DataError(f"{source}: expected a file")
    elif path.stat().st_size > LARGEST_MB * 2**20:
        raise DataError(
            f"{source}: the file has {path.stat().st_size / 2**20:.0f} MB, at most {LARGEST_MB} are read: "
            "take a part of it"
        )
    elif path.suffix in (".jsonl", ".ndjson"):
        rows = _rows_of_jsonl(path, source)
    elif path.suffix == ".parquet":
        rows = _rows_of_parquet(path, source)
    else:
        raise DataError(f"{source}: expected a file that ends in .jsonl or .parquet")
    lines: dict[str, tuple[str, DataLine]] = {}
    for where, row in rows:
        line = _line(row, source, where)
        before, known = lines.setdefault(line.prompt.rstrip("\r\n"), (where, line))
        if known.target != line.target:
            raise DataError(
                f"{source} {where}: the prompt of {before} with another target, {line.target!r:.40} and not "
                f"{known.target!r:.40}: keep one of them"
            )
        if len(lines) > MOST_LINES:
            raise DataError(_too_many(source, "more"))
    if not lines:
        raise DataError(
            f"{source}: no lines; expected one object per line, with a prompt and a target"
        )
    return WrittenFamily(source.name, tuple(line for _, line in lines.values()), str(source))


def _line(row: Any, source: FileTasks, where: str) -> DataLine:
    if not isinstance(row, Mapping):
        raise DataError(f"{source} {where}: expected an object, got {row!r:.40}")
    prompt = row.get(source.prompt)
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(_no_text(source, where, row, "prompt", source.prompt, prompt))
    column = source.target or ("target" if "target" in row else "completion")
    target = row.get(column)
    if type(target) is int:
        target = str(target)
    if not isinstance(target, str) or not target.strip():
        raise DataError(_no_text(source, where, row, "target", source.target or "target", target))
    reasoning, _, final = target.strip().rpartition(REASONED)
    if reasoning and "\n" not in final:
        target = final
    try:
        f"{prompt}{target}".encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{source} {where}: half a character, {error.object[error.start]!a}"
        ) from error
    depth = row.get("depth")
    return DataLine(depth if depth in DEPTHS else "short", prompt, target.strip())


def _no_text(
    source: FileTasks, where: str, row: Mapping[str, Any], knob: str, column: str, found: Any
) -> str:
    """What is wrong with a cell of the table, and which columns there are."""
    if column in row:
        return f"{source} {where}: expected text under {column!r}, got {found!r:.40}"
    columns = ", ".join(map(str, row)) or "none"
    hint = did_you_mean(column, map(str, row))
    return f"{source} {where}: no column {column!r};{hint} set {knob} to one of: {columns:.200}"


def _too_many(source: FileTasks, found: str) -> str:
    part = "" if source.path else f", such as split='{source.split or 'train'}[:20000]'"
    return f"{source}: expected at most {MOST_LINES} lines, got {found}: take a part of it{part}"


def _rows_of_jsonl(path: Path, source: FileTasks) -> Iterator[tuple[str, Any]]:
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


def _rows_of_parquet(path: Path, source: FileTasks) -> Iterator[tuple[str, Any]]:
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
            size = (
                sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
                / 2**20
            )
            if size > LARGEST_MB:
                raise DataError(
                    f"{source}: unpacked {size:.0f} MB, at most {LARGEST_MB}: take a part of it"
                )
            names = file.schema_arrow.names
            rows = file.read(columns=_columns(source, names)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{source}: not a Parquet file that can be read ({error!s:.200})"
        ) from error
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _rows_of_dataset(source: FileTasks) -> Iterator[tuple[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("a data set", "datasets", "data") from error
    datasets.disable_progress_bars()
    try:
        # Since version 4 there is no way to let a data set run code; pyproject.toml asks for that
        # version.
        found = datasets.load_dataset(source.dataset, source.config, split=source.split or "train")
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{source}: cannot be loaded: {error!s:.300}") from error
    if found.num_rows > MOST_LINES:
        raise DataError(_too_many(source, str(found.num_rows)))
    rows = found.select_columns(_columns(source, found.column_names))
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _columns(source: FileTasks, names: list[str]) -> list[str]:
    """The columns that are read, or all if one is missing, so that the message can name them."""
    target = source.target or ("target" if "target" in names else "completion")
    wanted = [source.prompt, target, "depth"]
    if {source.prompt, target} <= set(names):
        return [name for name in dict.fromkeys(wanted) if name in names]
    return names
