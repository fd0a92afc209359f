"""Tables that somebody wrote, row by row: JSON and CSV by the standard library, Parquet by pyarrow,
sheets of Excel and LibreOffice by calamine. Nothing is unpickled.

JSON is a list of objects, such a list as the value of a key, one object on each line, or what
pandas writes (columns or rows by their numbers). Cells of CSV are parted by commas, semicolons or
tabs. Texts are UTF-8, or UTF-16 with its mark at the beginning. A float that may stand for several
whole numbers is no name of a user.
"""

from __future__ import annotations

import csv
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

from symbiont_ecology.base.errors import DataError, MissingExtraError
from symbiont_ecology.base.files import Stamp, stamp_of
from symbiont_ecology.base.names import user_name
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.base.transcripts import escaped
from symbiont_ecology.base.types import TURN_END, is_text
from symbiont_ecology.base.untrusted import parse_json, read_regular

MAX_FILE_MB = 256
"""Of a file, unpacked; a larger one would be held in memory several times over."""
MAX_ROWS = 1_000_000
MAX_TEXT_CHARS = 1_000_000
"""Characters of a prompt or an answer: a longer one keeps a tokenizer busy for minutes."""
MAX_EXACT, MAX_SHORT = 2**53, 2**24
"""Size from which on a float, and one of 32 bits, may stand for several whole numbers."""
_ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+\d+|\d{16,}[.,]0+")
"""Whole numbers as a spreadsheet or a float writes them, some digits being lost."""
_WHOLE = re.compile(r"(\d+)\.0+")
"""A whole number of a column that has gaps, as pandas writes it."""


class Short(float):
    """A float that had 32 bits or fewer in its table."""


Row = tuple[str, Mapping[str, Any]]
"""Place of a row, such as ``line 7``, and its cells by column."""
Places = Iterator[tuple[str, object]]


def locate(path: str, about: str) -> tuple[Path, Stamp]:
    """Return a file from where the command is typed, or one of the package, and its stamp.

    Raises:
        DataError: there is none; ``about`` begins the message.
    """
    file = find_data(Path(path))
    if not os.path.exists(file):  # also where the system cannot even ask for such a name
        raise DataError(f"{about}: no such file; a path begins where the command is typed")
    return file, stamp_of(file)


def rows_of_file(path: Path, about: str, ending: str = "") -> Iterator[Row]:
    """Yield the rows of a table; ``READERS`` names the kinds of files.

    Cells of CSV are texts, empty ones None. ``ending`` says how to read it, whatever its name.

    Raises:
        DataError: it is too large, or cannot be read; ``about`` begins the message.
        MissingExtraError: pyarrow or python-calamine is not installed.
    """
    if (reader := READERS.get(ending or path.suffix.lower())) is None:
        raise DataError(f"{about}: expected a file that ends in {', '.join(READERS)}")
    try:
        if reader is _separated and zipfile.is_zipfile(path):
            raise ValueError("a sheet that is called otherwise: let its name end in .xlsx")
        yield from _checked(reader(path))
    except (OSError, ValueError, OverflowError, csv.Error, zipfile.BadZipFile) as error:
        raise DataError(f"{about}: cannot be read: {error!s:.300}") from error


def _checked(rows: Places) -> Iterator[Row]:
    """Pass rows on that have columns, up to as many as are read."""
    for count, (where, row) in enumerate(rows, 1):
        if count > MAX_ROWS:
            raise ValueError(f"expected at most {MAX_ROWS} rows: take a part of it")
        if not isinstance(row, Mapping):
            raise ValueError(f"{where}: expected an object, got {row!r:.40}")
        yield where, row


def _json_lines(path: Path) -> Places:
    text = read_regular(path, MAX_FILE_MB)
    return _values_of(text) if text.lstrip()[:1] == "[" else _lines_of(text)


def _json(path: Path) -> Places:
    text = read_regular(path, MAX_FILE_MB)
    try:
        return _values_of(text)
    except ValueError:
        if text.lstrip()[:1] != "{" or "\n" not in text.strip():
            raise
        return _lines_of(text)  # objects, one on each line, under the wrong ending


def _lines_of(text: str) -> Places:
    # Not splitlines: JSON text may hold U+2028 and other ends of lines that are none in JSONL.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"line {number}", _parsed(line, f"line {number}: ")


def _values_of(text: str) -> Places:
    value = _parsed(text)
    rows = value if isinstance(value, list) else _listed(value)
    if rows is None:
        raise ValueError(f"expected a list of objects, got {value!r:.40}")
    return _numbered(rows)


def _listed(value: object) -> list[object] | None:
    """Return the rows of a JSON object: one of its values, or its columns or rows by their numbers;
    None if there are none in it."""
    if not isinstance(value, dict):
        return None
    lists = [one for one in value.values() if isinstance(one, list) and one]
    found = [one for one in lists if all(isinstance(row, dict) for row in one)]
    if isinstance(names := value.get("columns"), list) and isinstance(value.get("data"), list):
        return [dict(zip(names, row, strict=False)) for row in value["data"]]
    if "data" in value and value["data"] in found:
        return list(value["data"])
    if len(found) == 1:
        return found[0]
    parts = list(value.values())
    if not parts or not all(isinstance(part, dict) for part in parts):
        return None
    if all(key.isdecimal() for key in value):
        return parts
    places = dict.fromkeys(place for part in parts for place in part)
    if not all(place.isdecimal() for place in places):
        return None
    return [{name: part.get(place) for name, part in value.items()} for place in places]


def _parsed(text: str, where: str = "") -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}not JSON ({error})") from error


def _separated(path: Path) -> Places:
    csv.field_size_limit(MAX_TEXT_CHARS)
    text = read_regular(path, MAX_FILE_MB)
    head, tab = text.partition("\n")[0], "\t"
    if head.startswith("sep=") and len(head.rstrip("\r")) == 5:  # a line for Excel alone
        text, separator = text.partition("\n")[2], head[4]
    else:  # Spreadsheets write semicolons where a comma is part of numbers.
        plain = re.sub(r'"[^"]*"', "", head)
        separator = tab if path.suffix.lower() == ".tsv" else max(",;\t", key=plain.count)
    table = csv.DictReader(StringIO(text, newline=""), delimiter=separator, strict=True)
    table.fieldnames = names = _columns(table.fieldnames or ())
    for row in table:
        where = f"line {table.line_num}"
        if None in row or None in row.values():
            raise ValueError(
                f"{where}: expected {len(names)} cells as in the first line: put texts with "
                f"{separator!r} in quotes"
            )
        if any(row.values()):
            yield where, {name: None if cell in _NOTHING else cell for name, cell in row.items()}


_NOTHING = ("", "\\N")
"""Cells without a value, as spreadsheets and Postgres write them."""


def _sheet(path: Path) -> Places:
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise MissingExtraError("a sheet", "python-calamine", "data") from error
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
    if size > MAX_FILE_MB * 2**20:
        raise ValueError(
            f"unpacked {size / 2**20:.0f} MB, at most {MAX_FILE_MB}: take a part of it"
        )
    try:
        head, *lines = CalamineWorkbook.from_path(path).get_sheet_by_index(0).to_python() or [[]]
    except CalamineError as error:
        raise ValueError(f"not a sheet that can be read ({error})") from error
    names = _columns(head)
    for number, line in enumerate(lines, 2):
        cells = [None if cell == "" else as_written(cell) for cell in line]
        if any(cell is not None for cell in cells):
            yield f"line {number}", dict(zip(names, cells, strict=False))


def _columns(names: Sequence[object]) -> list[str]:
    """Return the names of columns; one without a name, such as that of row numbers, is called by
    its place.

    Raises:
        ValueError: two are alike.
    """
    columns = [str(name).strip() or f"column {place}" for place, name in enumerate(names, 1)]
    if len(set(columns)) < len(columns):
        raise ValueError(f"expected different columns, got {', '.join(columns):.200}")
    return columns


def _parquet(path: Path) -> Places:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file", "pyarrow", "data") from error
    if not path.is_file():
        raise ValueError("expected a regular file")
    try:
        with parquet.ParquetFile(path) as file:
            head = file.metadata
            groups = map(head.row_group, range(head.num_row_groups))
            megabytes = sum(group.total_byte_size for group in groups) / 2**20
            if megabytes > MAX_FILE_MB or head.num_rows > MAX_ROWS:
                raise ValueError(
                    f"{head.num_rows} rows, unpacked {megabytes:.0f} MB, at most {MAX_ROWS} and "
                    f"{MAX_FILE_MB}: take a part of it"
                )
            short = [
                one.name for one in file.schema_arrow if str(one.type) in ("float", "halffloat")
            ]
            rows = file.read().to_pylist()
            for row in rows if short else ():
                row |= {name: Short(row[name]) for name in short if row[name] is not None}
            return _numbered(rows)
    except pyarrow.ArrowException as error:
        raise ValueError(f"not a Parquet file that can be read ({error})") from error


def _numbered(rows: Iterable[object]) -> Places:
    return ((f"row {number}", row) for number, row in enumerate(rows, 1))


READERS: Mapping[str, Callable[[Path], Places]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _separated,
    ".tsv": _separated,
    ".txt": _separated,
    ".xlsx": _sheet,
    ".xls": _sheet,
    ".ods": _sheet,
    ".parquet": _parquet,
}
"""By how the name of a file ends."""


def as_written(cell: object) -> object:
    """Return a cell as somebody wrote it: where a column of whole numbers has gaps, pandas writes
    floats, and NaN for the gaps. Databases write decimal numbers and UUIDs."""
    match cell:
        case str():  # the most of all
            return cell
        case float():
            if math.isnan(cell):
                return None
            most = MAX_SHORT if isinstance(cell, Short) else MAX_EXACT
            return int(cell) if cell.is_integer() and abs(cell) < most else cell
        case Decimal():
            return int(cell) if cell == cell.to_integral_value() else float(cell)
        case UUID():
            return str(cell)
    return cell


def check_columns(row: Mapping[str, Any], columns: Iterable[str], where: str, hint: str) -> None:
    """Refuse a row that lacks a column; ``hint`` tells what to do.

    Raises:
        DataError: it does. The message says which column is near, and which there are.
    """
    for name in columns:
        if name not in row:
            names = [str(column) for column in row]
            listed = ", ".join(map(escaped, names)) or "none"
            near = did_you_mean(name, names)
            raise DataError(f"{where}: no column {name!r};{near} it has {listed:.200}: {hint}")


def text_in(row: Mapping[str, Any], column: str, where: str, *, may_be_empty: bool = False) -> str:
    """Return the text of a cell; of a conversation, what its only message says.

    Raises:
        DataError: there is no text.
    """
    cell = row[column]
    if isinstance(cell, list) and len(cell) == 1 and isinstance(cell[0], Mapping):
        cell = cell[0].get("content")
    if not isinstance(cell, str) or not (cell.strip() or may_be_empty):
        raise DataError(f"{where}: expected text under {column!r}, got {row[column]!r:.40}")
    return cell


def name_in(row: Mapping[str, Any], column: str, where: str) -> str:
    """Return who asks, as a row says it: a line of text or a whole number.

    Raises:
        DataError: it says nothing, or nothing that can be a name (``named``).
    """
    try:
        return named(row.get(column))
    except ValueError as error:
        raise DataError(f"{where}: expected who asks under {column!r}: {error}") from error


def named(cell: object) -> str:
    """Return the normal form of a user's name in a cell: a line of text or a whole number.

    Raises:
        ValueError: it cannot be a name. A number that a float holds may have lost its last digits:
            then several users would be one.
    """
    name = as_written(cell)
    text = name.strip() if isinstance(name, str) else ""
    is_rounded = isinstance(name, float) and name.is_integer()
    if is_rounded or _ROUNDED.fullmatch(text):
        raise ValueError(f"{name!s:.40} has lost digits, so users could be mixed: write it as text")
    if type(name) is int:
        return str(name)
    if not isinstance(name, str):
        raise ValueError(f"expected a line of text or a whole number, got {name!r:.40}")
    return match[1] if (match := _WHOLE.fullmatch(text)) else user_name(text)


def check_whole(texts: Iterable[str], where: str) -> None:
    """Refuse half a character, which cannot be written down, a separator of turns, and a text that
    is far longer than any host reads.

    Raises:
        DataError: a text is or holds one.
    """
    for text in texts:
        if len(text) > MAX_TEXT_CHARS:
            reason = f"a text of {len(text)} characters, at most {MAX_TEXT_CHARS} are read"
        elif TURN_END in text:
            reason = "the control character U+001D, which parts turns"
        elif not is_text(text):
            reason = "half a character"
        else:
            continue
        raise DataError(f"{where}: {reason}, in {text!a:.40}: take it out")
