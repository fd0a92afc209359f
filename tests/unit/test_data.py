"""Data that somebody wrote as tasks, data sets that this package writes, and questions from
elsewhere."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lines import Row, config, jsonl, quiz, rows
from symbiont_ecology.base.errors import ConfigError, DataError, MissingExtraError
from symbiont_ecology.run.build import check
from symbiont_ecology.run.config import RunConfig, dump_config, load_config
from symbiont_ecology.tasks import tables, task_sources
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.tables import rows_of_file


def family(path: Path, **knobs: object) -> DataTask:
    """The lines of a file as a task."""
    task = task_sources.build({"kind": "file", "name": "quiz", "path": str(path), **knobs}).task()
    assert isinstance(task, DataTask)
    return task


# Reading.


def test_lines_are_read_whoever_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    texts = [
        '{"prompt": "a", "target": "1"}',
        "",
        "  ",
        '{"prompt": "b", "completion": " 2 ", "depth": "long"}',
        '{"prompt": "c", "target": 3, "completion": "no", "depth": "medium", "more": [1]}',
        '{"prompt": "d\u2028d", "target": "four\\nlines", "depth": "hard"}',
        '{"prompt": "e", "target": "3 + 2 = 5\\nso it is\\n#### 1,005", "depth": null}',
        '{"prompt": "a\\n", "target": "1"}',
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(texts).encode())
    found = family(path)
    assert [(line.depth, line.prompt, *line.answers) for line in found.lines] == [
        ("short", "a", "1"),
        ("long", "b", "2"),
        ("medium", "c", "3"),
        ("hard", "d\u2028d", "four\nlines"),
        ("short", "e", "1,005"),
    ]
    assert found.depths == ("short", "medium", "long", "hard")
    assert [found.reply_limit(depth) for depth in found.depths] == [64] * 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not JSON"),
        ("3", "line 2: expected an object, got 3"),
        ('{"prompt": "", "target": "t"}', "line 2: expected text under 'prompt', got ''"),
        (
            '{"promt": "p", "target": "t"}',
            "no column 'prompt'; did you mean 'promt'? it has promt, target: set prompt to",
        ),
        (
            '{"prompt": "p", "answer": "t"}',
            "no column 'target'; it has prompt, answer: set target to one of these",
        ),
        ('{"prompt": "p", "completion": ""}', "a list of these under 'completion', got ''"),
        (
            '{"prompt": "p", "target": true}',
            "under 'target', got True: write it as the reply should be",
        ),
        ('{"prompt": "p", "target": NaN}', "a list of these under 'target', got nan"),
        ('{"prompt": "p", "target": ["t", ""]}', "under 'target', got ['t', '']"),
        ('{"prompt": "p", "target": "\\ud800"}', "line 2: half a character"),
        (
            '{"prompt": "p", "target": "t", "depth": "algebra/1"}',
            "line 2: expected a depth without a slash, got 'algebra/1'",
        ),
        (
            '{"prompt": "quiz: no 0\\n", "target": "x"}',
            "line 2: the prompt of line 1 with another target, 'x'",
        ),
    ],
)
def test_a_wrong_line_is_one_clear_line(line: str, said: str, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "quiz.jsonl", rows(1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError) as refused:
        family(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.doc").write_text("prompt,target\n")
    (tmp_path / "empty.csv").write_text("prompt,target\n")
    (tmp_path / "nothing.csv").write_text("")
    (tmp_path / "short.csv").write_text("prompt,target\n1 + 1\n")
    (tmp_path / "long.csv").write_text("prompt,target\nred, green,a colour\n")
    (tmp_path / "twice.csv").write_text("prompt,target,target\na,b,c\n")
    (tmp_path / "quote.csv").write_text('prompt,target\n"a" b,c\n')
    (tmp_path / "latin.csv").write_bytes("prompt,target\nm\xfcde,tired\n".encode("latin-1"))
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.jsonl").mkdir()
    for name, said in (
        ("missing.jsonl", "no such file"),
        (
            "text.doc",
            "ends in .jsonl, .ndjson, .json, .csv, .tsv, .txt, .xlsx, .xls, .ods, .parquet",
        ),
        ("empty.csv", "no lines"),
        ("nothing.csv", "no lines"),
        ("short.csv", "line 2: expected 2 cells as in the first line: put texts with"),
        ("long.csv", "line 2: expected 2 cells .*: put texts with ',' in quotes"),
        ("twice.csv", "different columns, got prompt, target, target"),
        ("quote.csv", "cannot be read"),
        ("latin.csv", "cannot be read"),
        ("empty.jsonl", "no lines"),
        ("binary.jsonl", "cannot be read"),
        ("folder.jsonl", "expected a regular file"),
    ):
        with pytest.raises(DataError, match=said):
            family(tmp_path / name)
    monkeypatch.setattr(tables, "MAX_ROWS", 50)
    with pytest.raises(DataError, match="at most 50 rows"):
        family(jsonl(tmp_path / "many.jsonl", rows()))
    monkeypatch.setattr(tables, "MAX_FILE_MB", 0.001)
    with pytest.raises(DataError, match=r"0 MB, at most 0.001 are read"):
        family(jsonl(tmp_path / "large.jsonl", rows()))


def test_a_file_is_read_again_when_it_changed_and_not_before(file: Path) -> None:
    first = family(file)
    assert family(file) is first
    jsonl(file, rows(81))
    assert len(family(file).lines) == 81
    assert len(first.lines) == 80
    assert family(file).digest != first.digest


def test_json_is_read_as_jsonl_is(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(rows()), encoding="utf-8")
    found = family(tmp_path / "q.json")
    assert found.digest == family(jsonl(tmp_path / "q.jsonl", rows())).digest
    for text, said in (("[", "not JSON"), ("[" * 10**5, "not JSON"), ("{}", "a list of objects")):
        (tmp_path / "q.json").write_text(text)
        with pytest.raises(DataError, match=said):
            family(tmp_path / "q.json")


PARQUET_ROWS = [
    {
        "question": f"quiz: no {n}",
        "answer": f"so\n#### {n}",
        "depth": "medium" if n % 2 else "short",
    }
    for n in range(100)
]


def parquet(path: Path) -> Path:
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    writer.write_table(pyarrow.Table.from_pylist(PARQUET_ROWS), path)
    return path


def test_parquet_is_read_as_jsonl_is(tmp_path: Path) -> None:
    columns = {"prompt": "question", "target": "answer"}
    found = family(parquet(tmp_path / "q.parquet"), **columns)
    assert found.digest == family(jsonl(tmp_path / "q.jsonl", PARQUET_ROWS), **columns).digest
    assert [line.answers for line in found.lines[:3]] == [("0",), ("1",), ("2",)]
    with pytest.raises(
        DataError, match="no column 'prompt'; it has question, answer, depth: set prompt to one"
    ):
        family(tmp_path / "q.parquet")
    (tmp_path / "no.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="not a Parquet file"):
        family(tmp_path / "no.parquet")


def test_a_missing_package_is_said_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    spec = {"kind": "file", "name": "quiz", "path": str(tmp_path / "q.parquet")}
    with pytest.raises(
        MissingExtraError, match=r"pyarrow: pip install 'symbiont-ecology\[data\]'"
    ) as refused:
        check(config(spec))
    assert refused.value.exit_code == 3


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        (
            {"name": "a/b", "path": "x"},
            "name: expected letters, digits, dots and dashes, at most 64, got 'a/b'",
        ),
        ({"name": "", "path": "x"}, "name: expected letters"),
        ({"name": "a"}, "missing key 'path'"),
        ({"name": "a", "dataset": "y"}, "'dataset' is gone"),
        ({"name": "a", "path": "x", "promt": "q"}, "unknown key 'promt'; did you mean 'prompt'?"),
        ({"path": "x"}, "missing key 'name'"),
    ],
)
def test_wrong_knobs_are_one_clear_line(knobs: Row, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        task_sources.build({"kind": "file", **knobs})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


# In a config.


def test_a_mapping_among_the_families_is_a_name_with_a_source(file: Path, tmp_path: Path) -> None:
    found = config("math.add", quiz(file))
    assert found.tasks.families == ("math.add", "quiz")
    assert found.tasks.sources == (quiz(file),)
    (tmp_path / "dumped.yaml").write_text(dump_config(found))
    assert load_config(tmp_path / "dumped.yaml") == found
    replaced = load_config(tmp_path / "dumped.yaml", ["tasks.families=[math.add]"])
    assert replaced.tasks.sources == ()
    check(found)


@pytest.mark.parametrize(
    ("families", "error", "said"),
    [
        (
            [{"kind": "file", "path": "x"}],
            ConfigError,
            "tasks.families.0: expected a valid string, got {'kind'",
        ),
        (["quiz"], ConfigError, "no task 'quiz'; known: "),
        ([{"kind": "file", "name": "quiz", "path": "x"}], DataError, "no such file"),
        (
            ["quiz", {"kind": "file", "name": "quiz", "path": "FILE"}],
            ConfigError,
            "each of them once",
        ),
        (
            [{"kind": "file", "name": name, "path": "FILE"} for name in ("a", "b")],
            DataError,
            "have the prompt 'quiz: no 0' in common",
        ),
    ],
)
def test_families_that_do_not_fit_are_refused_before_a_host_is_loaded(
    families: list[Any], error: type[Exception], said: str, file: Path
) -> None:
    placed = json.loads(json.dumps(families).replace("FILE", str(file)))
    with pytest.raises(error) as refused:
        check(config(*placed))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_depths_and_flips_that_data_have_not_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"do not fit 'medium': choose among short$"):
        check(config(quiz(file), depths="short,medium"))
    flipped = config("math.add", quiz(file)).model_dump()
    flipped["tasks"]["flip"] = {"families": ("quiz",), "at_flops": 1.0, "back_flops": None}
    with pytest.raises(ConfigError, match=r"\['quiz'\] are not among .* one way to be right only"):
        check(RunConfig(**flipped))


@pytest.mark.parametrize(
    ("ending", "separator"), [("csv", ","), ("csv", ";"), ("csv", "\t"), ("tsv", "\t")]
)
def test_a_table_with_separators_is_the_same_as_lines_of_json(
    ending: str, separator: str, tmp_path: Path
) -> None:
    path, written = tmp_path / f"q.{ending}", [*rows(), {"prompt": 'say "a,;\tb"\n', "target": "ü"}]
    with path.open("w", encoding="utf-8-sig", newline="") as file:  # as spreadsheets write it
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["prompt", "note", "target"])
        writer.writerows([row["prompt"], "", row["target"]] for row in written)
    lines = jsonl(tmp_path / "q.jsonl", written)
    read, expected = ([*rows_of_file(file, "q")] for file in (path, lines))
    assert [row for _, row in read] == [{"note": None} | row for _, row in expected]
    assert family(path) is not None
