"""Tables that somebody wrote, row by row: JSON and CSV by hand, Parquet by pyarrow, data sets by
``datasets`` from version 4, which runs no code of theirs. Nothing is unpickled.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from symbiont_ecology.errors import DataError, MissingExtraError
from symbiont_ecology.files import Stamp, stamp_of
from symbiont_ecology.registry import did_you_mean
from symbiont_ecology.shipped import find_data
from symbiont_ecology.transcripts import escaped
from symbiont_ecology.types import TURN_END
from symbiont_ecology.untrusted import parse_json, read_regular

LARGEST_MB = 256
"""Of a file, unpacked; a larger one would be held in memory several times over."""
MOST_LINES = 1_000_000
LONGEST_ROW_TEXT = 1_000_000
"""Characters of a prompt or an answer: a longer one keeps a tokenizer busy for minutes."""

_SEPARATORS = {".csv": ",", ".tsv": "\t"}

Row = tuple[str, object]
"""Where a row stands, such as ``line 7``, and what was read there."""


def locate(path: str, about: str) -> tuple[Path, Stamp]:
    """A file from where the command is typed, or one that comes with the package, and its stamp.

    Raises:
        DataError: there is none; ``about`` begins the message.
    """
    file = find_data(Path(path))
    try:
        file.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{about}: no such file ({reason}); a path begins where the command is typed"
        ) from error
    return file, stamp_of(file)


def rows_of_file(path: Path, about: str, columns: Sequence[str] | None = None) -> Iterable[Row]:
    """The rows of a JSON, JSONL, CSV, TSV or Parquet file. Where columns are named, the other ones
    of Parquet are not read: there they hold None. Cells of CSV are texts, empty ones None.

    Raises:
        DataError: it is too large, or cannot be read; ``about`` begins the message.
        MissingExtraError: pyarrow is not installed.
    """
    if not path.is_file():
        raise DataError(f"{about}: expected a file")
    if path.stat().st_size > LARGEST_MB * 2**20:
        raise DataError(
            f"{about}: the file has {path.stat().st_size / 2**20:.0f} MB, at most {LARGEST_MB} "
            "are read: take a part of it"
        )
    ending = path.suffix.lower()
    if ending in (".jsonl", ".ndjson"):
        return _rows_of_jsonl(path, about)
    if ending == ".json":
        return _rows_of_json(path, about)
    if ending == ".parquet":
        return _rows_of_parquet(path, about, columns)
    if ending in _SEPARATORS:
        return _rows_of_csv(path, about, _SEPARATORS[ending])
    raise DataError(
        f"{about}: expected a file that ends in .jsonl, .ndjson, .json, .csv, .tsv or .parquet"
    )


def rows_of_dataset(name: str, config: str | None, split: str, about: str) -> Iterator[Row]:
    """The rows of a split of a data set: a folder, or a name on the hub.

    Raises:
        DataError: it is too large, or cannot be loaded; ``about`` begins the message.
        MissingExtraError: the package ``datasets`` is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("a data set", "datasets", "data") from error
    datasets.disable_progress_bars()
    try:
        # Since version 4 a data set cannot run code; pyproject.toml asks for that version.
        rows = datasets.load_dataset(name, config, split=split)
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{about}: cannot be loaded: {error!s:.300}") from error
    if rows.num_rows > MOST_LINES:
        raise DataError(f"{too_many(about, rows.num_rows)}, such as split='{split}[:20000]'")
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def cached_dataset(hub: str) -> bool | None:
    """Whether a data set of the hub was loaded on this machine before; None if the package
    ``datasets`` is not installed."""
    try:
        from datasets import config
        from datasets.naming import camelcase_to_snakecase
    except ImportError:
        return None
    *owner, name = hub.split("/")
    folder = "___".join([*owner, camelcase_to_snakecase(name)])
    return any(Path(config.HF_DATASETS_CACHE).glob(f"{folder}/*/*/*"))


def too_many(about: str, count: int | None = None) -> str:
    """What is wrong with a table that is too long; None counts as more."""
    return f"{about}: expected at most {MOST_LINES} lines, got {count or 'more'}: take a part of it"


def as_written(value: object) -> object:
    """A cell as somebody wrote it: where a column of whole numbers has gaps, pandas writes floats,
    and NaN for the gaps."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


def named_columns(row: Iterable[object]) -> str:
    """The columns of a row for a message, in one line whatever they are called."""
    return ", ".join(escaped(str(name)) for name in row) or "none"


def no_column(name: str, row: Iterable[object]) -> str:
    """A message that a row lacks a column: which one is near, and which there are."""
    hint = did_you_mean(name, map(str, row))
    return f"no column {name!r};{hint} it has {named_columns(row):.200}"


def check_length(text: str, where: str) -> None:
    """Refuses a prompt that is far longer than any host reads.

    Raises:
        DataError: it is.
    """
    if len(text) > LONGEST_ROW_TEXT:
        raise DataError(
            f"{where}: a text of {len(text)} characters, at most {LONGEST_ROW_TEXT} are read: "
            "shorten it"
        )


def check_whole(texts: Collection[str], where: str) -> None:
    """Refuses half a character, which cannot be written down, a separator of turns, and what is too
    long.

    Raises:
        DataError: a text is or holds one.
    """
    for text in texts:
        check_length(text, where)
    if any(TURN_END in text for text in texts):
        raise DataError(
            f"{where}: the control character U+001D, which parts the turns of a prompt: take it out"
        )
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: half a character, {error.object[error.start]!a}") from error


def _rows_of_jsonl(path: Path, about: str) -> Iterator[Row]:
    try:
        # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
        texts = read_regular(path, LARGEST_MB).split("\n")
    except (OSError, ValueError) as error:
        raise DataError(f"{about}: cannot be read: {error}") from error
    for number, text in enumerate(texts, 1):
        if text.strip():
            try:
                yield f"line {number}", parse_json(text)
            except ValueError as error:
                raise DataError(f"{about} line {number}: not JSON ({error})") from error


def _rows_of_json(path: Path, about: str) -> Iterator[Row]:
    try:
        rows = parse_json(read_regular(path, LARGEST_MB))
    except (OSError, ValueError) as error:
        raise DataError(f"{about}: not JSON that can be read ({error!s:.200})") from error
    if not isinstance(rows, list):
        raise DataError(f"{about}: expected a list of objects, got {rows!r:.40}")
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _rows_of_csv(path: Path, about: str, separator: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_ROW_TEXT)
    try:
        text = StringIO(read_regular(path, LARGEST_MB))
        table = csv.DictReader(text, delimiter=separator, strict=True)
        names = list(table.fieldnames or ())
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise DataError(f"{about}: expected different columns, got {twice[0]!r:.40} twice")
        for row in table:
            where = f"line {table.line_num}"
            if None in row or None in row.values():
                raise DataError(
                    f"{about} {where}: expected {len(names)} cells as in the first line, got "
                    f"{'more' if None in row else 'fewer'}: put texts with {separator!r} in quotes"
                )
            yield where, {name: cell or None for name, cell in row.items()}
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{about}: not a table that can be read ({error!s:.200})") from error


def _rows_of_parquet(path: Path, about: str, columns: Sequence[str] | None) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file", "pyarrow", "data") from error
    try:
        with parquet.ParquetFile(path) as file:
            head = file.metadata
            if head.num_rows > MOST_LINES:
                raise DataError(too_many(about, head.num_rows))
            size = _bytes_of(head, columns) / 2**20
            if size > LARGEST_MB:
                raise DataError(
                    f"{about}: unpacked {size:.0f} MB, at most {LARGEST_MB}: take a part of it"
                )
            names, rows = file.schema_arrow.names, file.read(columns=columns).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{about}: not a Parquet file that can be read ({error!s:.200})") from error
    unread = dict.fromkeys(names)
    yield from ((f"row {number}", unread | row) for number, row in enumerate(rows, 1))


def _bytes_of(head: Any, columns: Sequence[str] | None) -> int:
    """Unpacked bytes of some columns of a Parquet file, or of all, by its metadata."""
    parts = (
        head.row_group(group).column(place)
        for group in range(head.num_row_groups)
        for place in range(head.num_columns)
    )
    chunks = (p for p in parts if columns is None or p.path_in_schema.split(".")[0] in columns)
    return sum(part.total_uncompressed_size for part in chunks)
