"""Task files of lm-evaluation-harness: what is read of them, what is refused, and who wins."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from lines import Row, jsonl
from symbiont_ecology.base.errors import ConfigError, DataError, EcologyError, EcologyWarning
from symbiont_ecology.cli import main
from symbiont_ecology.run.build import mixture
from symbiont_ecology.run.config import compose
from symbiont_ecology.run.start import start
from symbiont_ecology.tasks import judge, task_sources
from symbiont_ecology.tasks.data import DataTask
from toy import ToyHost

OPEN = """
task: sums
dataset_path: json
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n", "Question:"], max_gen_toks: 24, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, ignore_case: true, ignore_punctuation: true}
num_fewshot: 4
metadata: {version: 1.0}
"""
CHOICES = """
output_type: multiple_choice
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


def harness(tmp_path: Path, text: str, data: list[Row] | None = None, **knobs: Any) -> DataTask:
    """The task of a task file and its data."""
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    if data is not None:
        knobs["data"] = str(jsonl(tmp_path / "data.jsonl", data))
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


def test_a_text_is_asked_and_judged_as_the_task_file_says(tmp_path: Path) -> None:
    task = harness(tmp_path, OPEN, open_rows())
    line = task.lines[0]
    assert line.prompt == "Question: the word after 0?\nAnswer:"
    assert line.answers == ("Word 1",)
    assert (task.depths, task.reply_limit("short")) == (("short",), 24)
    right = ("Word 1", " word 1.", "WORD 1\n\nWord 2", "word 1\nQuestion: what?", "So:\n`Word 1`")
    assert verdicts(task, line.question, *right) == [1.0] * len(right)
    wrong = ("", "Word 2", "Question: Word 1", "I say\n\nWord 1", "Word 1 or 2")
    assert verdicts(task, line.question, *wrong) == [0.0] * len(wrong)


def test_columns_serve_as_templates_do(tmp_path: Path) -> None:
    task = harness(tmp_path, "doc_to_text: question\ndoc_to_target: answer\n", open_rows())
    assert (task.lines[3].prompt, task.lines[3].answers) == ("the word after 3?", ("Word 4",))
    assert verdicts(task, task.lines[3].question, "Word 4", "word 4") == [1.0, 0.0]
    described = harness(
        tmp_path,
        'description: "Go on.\\n"\ndoc_to_text: question\ndoc_to_target: answer\n',
        open_rows(),
    )
    assert described.lines[0].prompt == "Go on.\nthe word after 0?"


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
    text = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: k\ndoc_to_choice: c\n"
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
        ("word", '{a: "no", b: "yes"}', "yes"),
        ("3", '"{{[one, two, two, word]}}"', "D"),
        ("label", '["the {{one}}", "the {{two}}"]', "B"),
        ("both", '["first", "second one"]', "A"),
    ],
)
def test_a_target_is_a_choice_or_its_number(
    target: str, choices: str, answer: str, tmp_path: Path
) -> None:
    text = f"output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: {target}\n"
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


def test_any_of_several_targets_is_right_and_a_stop_text_takes_some_away(tmp_path: Path) -> None:
    text = 'doc_to_text: q\ndoc_to_target: "{{names}}"\ngeneration_kwargs: {until: "."}\n'
    rows = [{"q": f"q{n}", "names": ["the sea", "S.E.A.", "sea"]} for n in range(60)]
    task = harness(tmp_path, text, rows)
    assert task.lines[0].answers == ("the sea", "sea")
    assert verdicts(task, "q0", "sea. Or so", "the sea", "S.E.A.") == [1.0, 1.0, 0.0]
    with pytest.raises(DataError, match=r"expected an answer without any of \['.'\], got 'a.b'"):
        harness(tmp_path, text, [{"q": "q", "names": "a.b"}])


def test_a_grader_and_a_limit_of_the_config_win(tmp_path: Path) -> None:
    graded = harness(tmp_path, OPEN, open_rows(), grade="stated", reply_tokens=9)
    assert verdicts(graded, graded.lines[0].question, "It is word 1.") == [1.0]
    assert graded.reply_limit("short") == 9


WRONG: dict[str, tuple[str, str]] = {
    "a function": ("process_docs: !function utils.process\n", "without tags, which name code"),
    "a Python tag": ("x: !!python/object/apply:os.system [ls]\n", "without tags, which name code"),
    "a reference": ("a: &a [1]\nb: *a\n", "and references, got 'a'"),
    "an unknown key": ("process_docs: x\ngen_prefix: y\n", "not supported: process_docs, gen_pre"),
    "another file": ("include: base.yaml\n", "keys that are not supported: include"),
    "another output": ("output_type: loglikelihood\n", "output_type: expected 'generate_until' or"),
    "another metric": ("metric_list: [{metric: bleu}]\n", "expected exact_match, with ignore_cas"),
    "a pattern": (
        'metric_list: [{metric: exact_match, regexes_to_ignore: ["("]}]\n',
        "metric_list: expected exact_match",
    ),
    "no texts": ("generation_kwargs: {until: [3]}\n", "expected texts as until"),
    "no number": ("generation_kwargs: {max_gen_toks: x}\n", "and a number as max_gen_toks"),
    "no YAML": ("[", "not valid YAML"),
    "a loop": ('doc_to_text: "{% for a in q %}{{a}}{% endfor %}"\n', "write a template of {{"),
    "a product": ("doc_to_text: \"{{'x' * 10**9}}\"\n", "'x' * 10 ** 9 is not supported"),
    "a long text": (f'doc_to_text: "{" {{big}}" * 200}"\n', "more than 100000 characters"),
    "an inner part": ('doc_to_text: "{{q.__class__.__mro__}}"\n', "is not supported"),
    "a call": ('doc_to_text: "{{cycler(q)}}"\n', "cycler(q) is not supported"),
    "a filter": ('doc_to_text: "{{q | pprint}}"\n', "q | pprint is not supported"),
    "a deep one": (f'doc_to_text: "{{{{{"(" * 5000}q{")" * 5000}}}}}"\n', "cannot be filled in"),
    "a missing name": ('doc_to_text: "{{quest}}"\n', "'quest' is undefined"),
    "a missing column": ("doc_to_text: quest\n", "no column 'quest'; it has q, a"),
    "no template": ('doc_to_text: "{{q"\n', "write a template of {{"),
    "no text": ("doc_to_text: n\n", "doc_to_text: expected text, got 3"),
    "no answer": ("doc_to_target: nothing\n", "doc_to_target: expected an answer, got None"),
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
        ("", {"k": 1}, "missing key 'doc_to_choice'"),
        ("doc_to_choice: c\n", {"k": 1, "c": "ab"}, "expected 2 to 26 texts, got 'ab'"),
        ("doc_to_choice: c\n", {"k": 2, "c": ["a", "b"]}, "expected one of the 2 choices"),
        ("doc_to_choice: c\n", {"k": "z", "c": ["a", "b"]}, "or its number from 0, got 'z'"),
        ("doc_to_choice: c\n", {"k": -1, "c": ["a", "b"]}, "or its number from 0, got -1"),
    ],
)
def test_choices_that_do_not_fit_are_one_clear_line(
    choices: str, row: Row, said: str, tmp_path: Path
) -> None:
    text = f"output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: k\n{choices}"
    with pytest.raises(EcologyError) as refused:
        harness(tmp_path, text, [{"q": "q", **row}])
    assert said in str(refused.value)


def test_files_must_be_here(tmp_path: Path) -> None:
    text = "doc_to_text: q\ndoc_to_target: a\ndataset_path: some/hub_name\n"
    with pytest.raises(ConfigError, match=r"expected a local file, set data: .* nothing is"):
        harness(tmp_path, text)
    with pytest.raises(DataError, match=r"data https://x/y.jsonl: no such file"):
        harness(tmp_path, text + "dataset_kwargs: {data_files: https://x/y.jsonl}\n")
    with pytest.raises(ConfigError, match="expected a local file, set data"):
        harness(tmp_path, text + "dataset_kwargs: {data_files: {train: x.jsonl}}\n")
    with pytest.raises(DataError, match="no lines"):
        harness(tmp_path, text, [])


def test_what_a_task_file_says_does_not_reach_the_terminal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.yaml").write_text('doc_to_text: q\ndoc_to_target: a\n"\\e[31mred": 3\n')
    jsonl(tmp_path / "data.jsonl", [{"q": "q", "a": "a"}])
    monkeypatch.chdir(tmp_path)
    family = "{kind: lm_eval, name: own, path: task.yaml, data: data.jsonl}"
    words = ["symbiont", "run", "base", f"tasks.families=[{family}]", "--dry-run"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # main sets its own
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "keys that are not supported: \\u001b[31mred" in said
    assert "\x1b" not in said


def test_filters_of_replies_are_named_in_a_warning(tmp_path: Path) -> None:
    filtered = f"{OPEN}filter_list: [{{name: get, filter: [{{function: take_first}}]}}]\n"
    with pytest.warns(EcologyWarning, match="filter_list is not used; the grader finds"):
        harness(tmp_path, filtered, open_rows())


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
