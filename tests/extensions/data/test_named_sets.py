"""Data sets by name: options stay, gold answers win, parts never share a prompt."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from lines import Row, jsonl
from symbiont_ecology.base.errors import ConfigError, DataError, EcologyError, MissingExtraError
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.items import read_items
from symbiont_ecology.extensions.data.cli import get_set
from symbiont_ecology.extensions.data.sets import NAMED_SETS
from symbiont_ecology.tasks import judge, task_sources
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.grading import Choice, NumericAnswer

CITIES = ("Berlin", "Paris", "a city", "Rome", "Oslo", "Bern", "Lima", "Cairo", "Quito", "Accra")


def mmlu_pro(number: int) -> Row:
    place, options = number % 10, [f"{city} {number}" for city in CITIES]
    return {
        "question_id": number,
        "question": f"Which is number {place} of list {number}?",
        "options": options,
        "answer": "ABCDEFGHIJ"[place],
        "answer_index": place,
        "cot_content": "",
        "category": ("computer science", "law")[number % 2],
        "src": "x",
    }


def gsm8k(number: int) -> Row:
    answer = f"Twice {number} is <<2*{number}={2 * number}>>.\n#### 1,{2 * number:03d}"
    return {"question": f"Tom has {number} bags. How many socks?", "answer": answer}


def squad(number: int) -> Row:
    answers = {"text": [f"The {number} towers", f"{number} towers"], "answer_start": [0, 4]}
    context = f"The {number} towers stand in town."
    question = f"What stands in town {number}?"
    return {"id": f"{number}", "title": "Towers", "context": context, "question": question} | {
        "answers": answers
    }


def alpaca(number: int) -> Row:
    given = "" if number % 2 else f"{number}, please"
    prompt = {"instruction": f"Name the number {number}.", "input": given}
    return {**prompt, "output": f"It is {number}.", "text": "Below is an instruction."}


def dolly(number: int) -> Row:
    prompt = {"instruction": f"Tell of {number}.", "context": f"A text on {number}."}
    return {**prompt, "response": f"{number} is a number.", "category": "closed_qa"}


SETS = {"mmlu-pro": mmlu_pro, "gsm8k": gsm8k, "squad": squad, "alpaca": alpaca, "dolly": dolly}
every_set = pytest.mark.parametrize("name", list(NAMED_SETS))


def rows_of(name: str, count: int = 60, start: int = 0) -> list[Row]:
    return [SETS[name](number) for number in range(start, start + count)]


def converted(tmp_path: Path, name: str, rows: list[Row], **words: Any) -> list[Item]:
    """The questions that a file with these rows becomes."""
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}.jsonl"
    get_set(name, out, file=jsonl(tmp_path / "rows.jsonl", rows), **words)
    return read_items(out)


def prompts(items: list[Item]) -> set[str]:
    return {item.prompt for item in items}


@every_set
def test_a_gold_answer_of_a_named_set_is_right_and_nothing_is_not(
    name: str, tmp_path: Path
) -> None:
    items = converted(tmp_path, name, rows_of(name))
    assert len(items) == 60
    assert {item.family for item in items} == {name}
    for item in items:
        verdicts = judge([(item, item.answer), (item, ""), (item, "what?")])
        assert [one.verdict for one in verdicts] == [1.0, 0.0, 0.0], item.answer


@pytest.mark.parametrize(
    ("name", "prompt", "answer"),
    [
        (
            "mmlu-pro",
            "Which is number 1 of list 1?\nA. Berlin 1\nB. Paris 1\nC. a city 1\nD. Rome 1\n"
            "E. Oslo 1\nF. Bern 1\nG. Lima 1\nH. Cairo 1\nI. Quito 1\nJ. Accra 1\n"
            "Answer with the letter alone.",
            "B",
        ),
        ("gsm8k", "Tom has 1 bags. How many socks?", "1,002"),
        (
            "squad",
            "The 1 towers stand in town.\n\nQuestion: What stands in town 1?\n"
            "Answer with words of the text.",
            "The 1 towers",
        ),
        ("alpaca", "Name the number 1.", "It is 1."),
        ("dolly", "Tell of 1.\n\nA text on 1.", "1 is a number."),
    ],
)
def test_a_row_of_a_named_set_asks_all_that_it_says(
    name: str, prompt: str, answer: str, tmp_path: Path
) -> None:
    item = converted(tmp_path, name, rows_of(name, 2))[1]
    assert (item.prompt, item.answer) == (prompt, answer)
    assert item.depth == {"mmlu-pro": "law", "dolly": "closed_qa"}.get(name, "short")


# Parts.


@every_set
def test_parts_share_no_prompt_and_are_all_there_is(name: str, tmp_path: Path) -> None:
    whole = prompts(converted(tmp_path, name, rows_of(name)))
    parts = [
        prompts(converted(tmp_path, name, rows_of(name), part=part))
        for part in ("train", "selection", "holdout")
    ]
    assert sum(map(len, parts)) == len(whole)
    assert set.union(*parts) == whole


# What was written is learned from as it is asked.


@pytest.mark.parametrize(
    ("name", "grader", "tokens"),
    [("mmlu-pro", Choice(tuple("ABCDEFGHIJ")), 64), ("gsm8k", NumericAnswer(), 300)],
)
def test_a_file_of_questions_brings_its_grader_and_its_limit(
    name: str, grader: object, tokens: int, tmp_path: Path
) -> None:
    out = tmp_path / "all.jsonl"
    get_set(name, out, file=jsonl(tmp_path / "rows.jsonl", rows_of(name)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = task_sources.build({"kind": "file", "name": name, "path": str(out)}).task()
    assert isinstance(task, DataTask)
    assert task.grader == grader
    assert {task.reply_limit(depth) for depth in task.depths} == {tokens}
    stricter = {"kind": "file", "name": name, "path": str(out), "grade": "exact"}
    assert task_sources.build(stricter).task() != task


# Mistakes.


def test_rows_that_cannot_be_asked_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beyond = mmlu_pro(4) | {"answer_index": 10}
    empty = mmlu_pro(5) | {"question": " "}
    none = mmlu_pro(6) | {"options": None}
    rows = [mmlu_pro(0), mmlu_pro(0), beyond, empty, none, mmlu_pro(7)]
    assert len(converted(tmp_path, "mmlu-pro", rows)) == 2
    said = capsys.readouterr().out
    for reason in (
        "the same prompt again (1)",
        "doc_to_target: expected one of the 10 choices, or its number from 0 (1)",
        "doc_to_text: expected text (1)",
        "doc_to_choice: expected 2 to 26 texts (1)",
    ):
        assert reason in said
    assert "2 of 2 questions" in said


@pytest.mark.parametrize(
    ("rows", "words", "error", "said"),
    [
        ([gsm8k(1)], {"name": "gsm"}, ConfigError, "no data set 'gsm'; did you mean 'gsm8k'?"),
        ([gsm8k(1)], {"name": "squad"}, DataError, "no column 'context'; it has question, answer"),
        ([gsm8k(1) | {"answer": ""}], {}, DataError, "expected questions, found none: doc_to_tar"),
        ([gsm8k(1) | {"answer": "x"}], {}, DataError, "the grader cannot use"),
    ],
)
def test_a_mistake_with_a_table_is_one_clear_line(
    rows: list[Any], words: dict[str, str], error: type[EcologyError], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as refused:
        converted(tmp_path, words.pop("name", "gsm8k"), rows, **words)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("out*"))


# The hub.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of clones: the package reads them under the names of the hub."""
    datasets = pytest.importorskip("datasets")
    import pyarrow
    from pyarrow import parquet

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for name, one in NAMED_SETS.items():
        folder = tmp_path / one.hub
        (folder / "data").mkdir(parents=True)
        files = [{"split": split, "path": f"data/{split}-*"} for split in one.splits]
        config = [{"config_name": one.config or "default", "data_files": files}]
        (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(config)}\n---\n")
        for place, split in enumerate(one.splits):
            table = pyarrow.Table.from_pylist(rows_of(name, 40, start=20 * place))
            parquet.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path


@every_set
def test_a_named_set_is_read_from_the_hub_as_from_a_file(name: str, hub: Path) -> None:
    get_set(name, hub / "file.jsonl", file=jsonl(hub / "rows.jsonl", rows_of(name, 40)))
    get_set(name, hub / "hub.jsonl")
    expected = [(item.prompt, item.answer) for item in read_items(hub / "file.jsonl")]
    assert [(item.prompt, item.answer) for item in read_items(hub / "hub.jsonl")] == expected


def test_a_set_out_of_reach_is_one_line_with_what_to_do(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hub / "empty").mkdir()
    monkeypatch.chdir(hub / "empty")
    with pytest.raises(DataError) as refused:
        get_set("gsm8k", hub / "x.jsonl")
    assert "cannot be loaded" in str(refused.value)
    assert "--file reads one of your own" in str(refused.value)
    assert not (hub / "x.jsonl").exists()


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'symbiont-ecology\[data\]'"):
        get_set("gsm8k", tmp_path / "x.jsonl")
