"""Tables as spreadsheets, databases and pandas write them: the same rows, or one line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symbiont_ecology.base.errors import DataError
from symbiont_ecology.tasks.tables import rows_of_file

ROWS = [
    {"user": "u0", "prompt": "say a", "reply": 'a; "b", c', "accepted": "TRUE"},
    {"user": "u1", "prompt": "say\nb", "reply": "é 👍", "accepted": "FALSE"},
]
FRAME = pd.DataFrame(ROWS)


def rows_in(path: Path) -> list[dict[str, object]]:
    return [dict(row) for _, row in rows_of_file(path, "table")]


def separated(delimiter: str, head: str = "", end: str = "\r\n") -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(ROWS[0]), delimiter=delimiter, lineterminator=end, quoting=1
    )
    writer.writeheader()
    writer.writerows(ROWS)
    return head + stream.getvalue()


WRITERS: dict[str, Callable[[Path], object]] = {
    "comma.csv": lambda path: path.write_text(separated(",")),
    "excel.csv": lambda path: path.write_text(separated(";"), encoding="utf-8-sig"),
    "mac.csv": lambda path: path.write_text(separated(";", end="\r"), newline=""),
    "said.csv": lambda path: path.write_text(separated("|", "sep=|\r\n")),
    "unicode.txt": lambda path: path.write_text(separated("\t"), encoding="utf-16"),
    "blank.csv": lambda path: path.write_text(separated(";") + ";;;\r\n\r\n"),
    "pandas.csv": lambda path: FRAME.to_csv(path, index=False),
    "pandas.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "columns.json": lambda path: FRAME.to_json(path),
    "records.json": lambda path: FRAME.to_json(path, orient="records"),
    "index.json": lambda path: FRAME.to_json(path, orient="index"),
    "split.json": lambda path: FRAME.to_json(path, orient="split"),
    "table.json": lambda path: FRAME.to_json(path, orient="table", index=False),
    "lines.jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "lines.json": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "page.json": lambda path: path.write_text(json.dumps({"data": ROWS, "meta": {"page": 1}})),
    "export.json": lambda path: path.write_text(json.dumps({"items": ROWS, "total": 2})),
    "marked.jsonl": lambda path: path.write_text(
        "\n".join(map(json.dumps, ROWS)), encoding="utf-8-sig"
    ),
    "sheet.xlsx": lambda path: FRAME.to_excel(path, index=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_rows_come_from_every_kind_of_file(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    assert rows_in(tmp_path / name) == ROWS


def test_a_sheet_keeps_numbers_dates_and_gaps(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4)
    frame = pd.DataFrame({"user": [7, 8], "time": [moment, moment], "note": [None, "x"]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    first = {"user": 7, "time": moment, "note": None}
    assert rows_in(tmp_path / "t.xlsx") == [first, {**first, "user": 8, "note": "x"}]


ODS = (
    "<office:document-content xmlns:office='{0}:office:1.0' xmlns:table='{0}:table:1.0' "
    "xmlns:text='{0}:text:1.0'><office:body><office:spreadsheet><table:table table:name='log'>{1}"
    "</table:table></office:spreadsheet></office:body></office:document-content>"
)


def test_a_sheet_of_libreoffice_is_read(tmp_path: Path) -> None:
    cell = "<table:table-cell office:value-type='string'><text:p>{}</text:p></table:table-cell>"
    lines = "".join(
        f"<table:table-row>{''.join(cell.format(escape(word)) for word in words)}</table:table-row>"
        for words in (ROWS[0], *(row.values() for row in ROWS))
    )
    manifest = "<m:manifest xmlns:m='urn:oasis:names:tc:opendocument:xmlns:manifest:1.0'/>"
    with ZipFile(tmp_path / "t.ods", "w") as book:
        book.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        book.writestr("META-INF/manifest.xml", manifest)
        book.writestr("content.xml", ODS.format("urn:oasis:names:tc:opendocument:xmlns", lines))
    read = rows_in(tmp_path / "t.ods")
    assert [(row["user"], row["reply"]) for row in read] == [
        (row["user"], row["reply"]) for row in ROWS
    ]


def test_columns_without_a_name_shift_nothing(tmp_path: Path) -> None:
    FRAME.to_excel(tmp_path / "t.xlsx")  # its first column are row numbers
    FRAME.to_csv(tmp_path / "t.csv")
    (tmp_path / "trailing.csv").write_text("user;reply;;\nu0;a;;\n")
    for name in ("t.xlsx", "t.csv"):
        rows = rows_in(tmp_path / name)
        assert [{column: row[column] for column in ROWS[0]} for row in rows] == ROWS
    (row,) = rows_in(tmp_path / "trailing.csv")
    assert (row["user"], row["reply"]) == ("u0", "a")


def test_a_list_under_the_name_of_lines_is_read_and_a_sheet_under_that_of_text_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps(ROWS))
    assert rows_in(tmp_path / "t.jsonl") == ROWS
    FRAME.to_excel(tmp_path / "t.xlsx", index=False)
    (tmp_path / "t.xlsx").rename(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"let its name end in \.xlsx"):
        rows_in(tmp_path / "t.csv")


def test_nothing_is_what_spreadsheets_and_postgres_write_for_it(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("user\treply\nu0\t\\N\nu1\t\n")
    assert [row["reply"] for row in rows_in(tmp_path / "t.tsv")] == [None, None]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "t.csv",
            "user,reply\nJosé,a\n".encode("latin-1"),
            "expected text in UTF-8.*save it as UTF-8",
        ),
        ("t.csv", b"user,user\na,b\n", "expected different columns"),
        ("t.csv", b"user,reply\na,b,c\n", "line 2: expected 2 cells"),
        ("t.json", b'{"a": 1}', "expected a list of objects"),
        ("t.json", b"[1, 2]", "row 1: expected an object"),
        ("t.json", b"[", "not JSON"),
        ("t.jsonl", b'{"a": 1}\n{"a"', "line 2: not JSON"),
        ("t.xlsx", b"PK", "not a sheet that can be read"),
        ("t.doc", b"", "expected a file that ends in"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        rows_in(tmp_path / name)


@given(
    st.binary(max_size=64), st.sampled_from([".csv", ".json", ".jsonl", ".tsv", ".txt", ".xlsx"])
)
def test_any_bytes_are_rows_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(content)
    with suppress(DataError):
        rows_in(path)
