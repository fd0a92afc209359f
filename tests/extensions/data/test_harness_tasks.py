"""Task files of lm-evaluation-harness: what is read of them, what is refused, and who wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lines import Row, jsonl
from runs import start
from symbiont_ecology.base.errors import DataError, EcologyError, EcologyWarning
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import compose
from symbiont_ecology.tasks import judge, task_sources
from symbiont_ecology.tasks.data import DataTask
from toy import ToyHost

OPEN = """
task: sums
dataset_path: json
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
filter_list: [{name: get, filter: [{function: take_first}]}]
"""
CHOICES = """
doc_to_text: "Question: {{question.strip()}}\\nAnswer:"
doc_to_choice: "{{choices.text}}"
doc_to_target: "{{choices.label.index(key)}}"
"""


def open_rows(count: int = 60, start: int = 0) -> list[Row]:
    """Questions with a text for an answer."""
    return [
        {"question": f"the word after {number}?", "answer": f"Word {number + 1}"}
        for number in range(start, start + count)
    ]


def choice_rows(count: int = 60) -> list[Row]:
    """Questions with three choices each."""
    return [
        {
            "question": f" which is {number}? ",
            "choices": {"text": [f"x{number}", f"y{number}", "no sea"], "label": ["1", "2", "3"]},
            "key": str(1 + number % 3),
        }
        for number in range(count)
    ]


def harness(tmp_path: Path, text: str, rows: list[Row], **knobs: Any) -> DataTask:
    """The task of a task file and its data."""
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    knobs = {"data": str(jsonl(tmp_path / "data.jsonl", rows)), **knobs}
    spec = {"kind": "lm_eval", "name": "own", "path": str(tmp_path / "task.yaml"), **knobs}
    task = task_sources.build(spec).task()
    assert isinstance(task, DataTask)
    return task


def verdicts(task: DataTask, question: str, *replies: str) -> list[float]:
    """Of some replies to a question."""
    item = task.item(question, "short")
    found = judge((item, reply) for reply in replies)
    assert not any(judgement.fault for judgement in found), found
    return [judgement.verdict for judgement in found]


def test_a_text_is_asked_and_judged_as_the_config_says(tmp_path: Path) -> None:
    with pytest.warns(EcologyWarning, match="keys that are not read: filter_list"):
        task = harness(tmp_path, OPEN, open_rows())
    line = task.lines[0]
    assert line.prompt == "Question: the word after 0?\nAnswer:"
    assert line.answers == ("Word 1",)
    assert task.depths == ("short",)
    assert verdicts(task, line.question, "Word 1", "word 1", "Word 2") == [1.0, 0.0, 0.0]
    text = 'description: "Go on.\\n"\ndoc_to_text: question\ndoc_to_target: answer\n'
    graded = harness(tmp_path, text, open_rows(), grade="stated", reply_tokens=9)
    assert graded.lines[0].prompt == "Go on.\nthe word after 0?"
    assert verdicts(graded, graded.lines[0].question, "It is word 1.") == [1.0]
    assert graded.reply_limit("short") == 9


def test_choices_are_listed_and_answered_by_their_letter(tmp_path: Path) -> None:
    task = harness(tmp_path, CHOICES, choice_rows())
    line = task.lines[1]
    assert line.prompt == "Question: which is 1?\nA. x1\nB. y1\nC. no sea\nAnswer:"
    assert line.answers == ("B",)
    assert verdicts(task, line.question, "B", "(B)", "Answer: B.", "A", "A or B", "y1", "") == [
        1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0
    ]  # fmt: skip


@pytest.mark.parametrize(
    "question", ["this:", "this?\nAnswer", "this: Answer:\n", "a" + " " * 10**5]
)
def test_only_the_place_of_the_answer_moves_behind_the_choices(
    question: str, tmp_path: Path
) -> None:
    rows = [{"q": question, "c": ["a b", "c d"], "k": 1}]
    text = "doc_to_text: q\ndoc_to_target: k\ndoc_to_choice: c\n"
    asked = question.removesuffix("Answer:\n").removesuffix("Answer").rstrip()
    prompt = harness(tmp_path, text, rows).lines[0].prompt
    assert prompt == f"{asked}\nA. a b\nB. c d\nAnswer:"


@pytest.mark.parametrize(
    ("target", "choices", "answer"),
    [
        ("label", '["no", "yes"]', "yes"),
        ("float", '["no", "yes"]', "yes"),
        ('"{{float}}"', '["no", "yes"]', "yes"),
        ('"{{label}}"', '["no", "yes"]', "yes"),
        ("\"{{ 'yes' if label else 'no' }}\"", '["no", "yes"]', "yes"),
        ("0", '["no", "yes"]', "no"),
        ("3", '"{{[one, two, two, word]}}"', "D"),
        ("both", '["first", "second one"]', "A"),
    ],
)
def test_a_target_is_a_choice_or_its_number(
    target: str, choices: str, answer: str, tmp_path: Path
) -> None:
    text = f"doc_to_text: q\ndoc_to_target: {target}\n"
    rows = [
        {"q": f"q{n}", "label": 1, "word": "yes", "one": "1", "two": "2", "both": [0, 1]}
        | {"float": 1.0}
        for n in range(60)
    ]
    task = harness(tmp_path, f"{text}doc_to_choice: {choices}\n", rows)
    assert task.lines[0].answers[0] == answer
    assert verdicts(task, task.lines[0].question, answer, "") == [1.0, 0.0]
    if answer in ("yes", "no"):
        assert task.lines[0].prompt == "q0"  # fixed words are not listed


def test_any_of_several_targets_is_right(tmp_path: Path) -> None:
    rows = [{"q": f"q{n}", "names": ["the sea", "sea"]} for n in range(60)]
    task = harness(tmp_path, 'doc_to_text: q\ndoc_to_target: "{{names}}"\n', rows)
    assert task.lines[0].answers == ("the sea", "sea")
    assert verdicts(task, "q0", "sea", "the sea", "S.E.A.") == [1.0, 1.0, 0.0]


WRONG: dict[str, tuple[str, str]] = {
    "a function": ("process_docs: !function utils.process\n", "not valid YAML"),
    "a Python tag": ("x: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
    "a reference": ("a: &a [1]\nb: *a\n", "references can make any number"),
    "another type": ("description: [a]\n", "description: expected"),
    "no YAML": ("[", "not valid YAML"),
    "a loop": ('doc_to_text: "{% for a in q %}{{a}}{% endfor %}"\n', "For is not supported"),
    "a product": ("doc_to_text: \"{{'x' * 10**9}}\"\n", "Mul is not supported"),
    "a long text": (f'doc_to_text: "{" {{big}}" * 200}"\n', "more than 100000 characters"),
    "an inner part": ('doc_to_text: "a {{q.__class__.__mro__}}"\n', "__class__"),
    "a call": ('doc_to_text: "{{cycler(q)}}"\n', "not safely callable"),
    "a method": ("doc_to_text: \"{{q.replace('q', big)}}\"\n", "not safely callable"),
    "a filter": ('doc_to_text: "{{q | pprint}}"\n', "No filter named 'pprint'"),
    "a deep one": (f'doc_to_text: "{{{{{"(" * 5000}q{")" * 5000}}}}}"\n', "cannot be filled in"),
    "a missing name": ('doc_to_text: "{{quest}}"\n', "expected text, got Undefined"),
    "a missing part": ('doc_to_text: "{{quest.strip()}}"\n', "'quest' is undefined"),
    "a missing column": ("doc_to_text: quest\n", "no column 'quest'; it has q, a"),
    "a list in a text": ('doc_to_text: "{{q}} {{[q]}}"\n', "a list stands between texts"),
    "no template": ('doc_to_text: "{{q"\n', "cannot be filled in"),
    "no text": ("doc_to_text: n\n", "doc_to_text: expected text, got 3"),
    "no answer": ("doc_to_target: nothing\n", "doc_to_target: expected text, a number"),
    "a reader of the environment": ('description: "${oc.env:HOME}"\n', "'${' is refused"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_read_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    whole = text
    for key, column in (("doc_to_text", "q"), ("doc_to_target", "a")):
        if key not in text:
            whole += f"{key}: {column}\n"
    with pytest.raises(EcologyError) as refused:
        harness(tmp_path, whole, [{"q": "q", "a": "a", "n": 3, "nothing": None, "big": "x" * 999}])
    assert said in str(refused.value)
    assert str(tmp_path / "task.yaml") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("choices", "row", "said"),
    [
        ("doc_to_choice: c\n", {"k": 1, "c": "ab"}, "expected 2 to 26 texts, got 'ab'"),
        ("doc_to_choice: c\n", {"k": 2, "c": ["a", "b"]}, "expected one of the 2 choices"),
        ("doc_to_choice: c\n", {"k": "z", "c": ["a", "b"]}, "or its number from 0, got 'z'"),
        ("doc_to_choice: c\n", {"k": -1, "c": ["a", "b"]}, "or its number from 0, got -1"),
    ],
)
def test_choices_that_do_not_fit_are_one_clear_line(
    choices: str, row: Row, said: str, tmp_path: Path
) -> None:
    text = f"doc_to_text: q\ndoc_to_target: k\n{choices}"
    with pytest.raises(EcologyError) as refused:
        harness(tmp_path, text, [{"q": "q", **row}])
    assert said in str(refused.value)


def test_files_must_be_here(tmp_path: Path) -> None:
    text = "doc_to_text: q\ndoc_to_target: a\n"
    with pytest.raises(DataError, match=r"data https://x/y.jsonl: no such file"):
        harness(tmp_path, text, [], data="https://x/y.jsonl")
    with pytest.raises(DataError, match="no lines"):
        harness(tmp_path, text, [])


def test_a_run_lives_on_a_task_file(tmp_path: Path) -> None:
    harness(tmp_path, CHOICES, choice_rows())
    family = {"kind": "lm_eval", "name": "own", "path": str(tmp_path / "task.yaml")}
    family["data"] = str(tmp_path / "data.jsonl")
    overrides = (f"tasks.families=[{json.dumps(family)}]", "strategy=single", "run.generations=3")
    config = compose((), overrides, "test")
    (task,) = mixture(config).tasks
    held = {line.prompt for line in task.part("short", "holdout")}  # type: ignore[attr-defined]
    start(config, tmp_path / "run", host=ToyHost())
    log = (tmp_path / "run/events.jsonl").read_text()
    assert "own/short/0/Question: which is" in log
    assert not any(json.dumps(prompt)[1:-1] in log for prompt in held)
