"""Data sets that are known by name: where they are on the hub, and what a row of each asks.

To add one, write a function that says what a row asks, and an entry of ``NAMED_SETS`` for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from symbiont_ecology.tasks.question_tables import (
    AskedRow,
    QuestionForm,
    TableRow,
    choice_of,
    chosen_letter,
    said,
    texts_of,
    with_options,
)


@dataclass(frozen=True)
class NamedSet:
    """A data set of the Hugging Face hub.

    ``hub`` is its id there, ``config`` its configuration (None: it has one). Of its own ``splits``
    the first is taken unless another is named. ``is_open`` says that so many replies are right that
    no grader can tell: it is for training and for perplexity.
    """

    hub: str
    licence: str
    splits: tuple[str, ...]
    form: QuestionForm
    config: str | None = None
    is_open: bool = False


def _mmlu_pro(row: TableRow) -> AskedRow:
    """Up to ten options (Wang et al. 2024, arXiv:2406.01574)."""
    options = texts_of(row["options"])
    letter = chosen_letter(row["answer_index"], options)
    if letter != row["answer"]:
        raise ValueError("answer and answer_index differ")
    return AskedRow(with_options(said(row["question"]), options), [letter], said(row["category"]))


def _gsm8k(row: TableRow) -> AskedRow:
    """Reasoning, then the number behind ``####`` (Cobbe et al. 2021, arXiv:2110.14168)."""
    return AskedRow(said(row["question"]), [row["answer"]])


def _squad(row: TableRow) -> AskedRow:
    """A passage and a question; any of the answers is right (Rajpurkar et al. 2016)."""
    if not (question := said(row["question"])):
        raise ValueError("no prompt")
    prompt = f"{said(row['context'])}\n\nQuestion: {question}\nAnswer with words of the text."
    return AskedRow(prompt, texts_of(row["answers"]))


def _alpaca(row: TableRow) -> AskedRow:
    """An instruction, often with an input (Taori et al. 2023)."""
    return AskedRow(_instructed(row["instruction"], row["input"]), [row["output"]])


def _dolly(row: TableRow) -> AskedRow:
    """An instruction, at times with a text (Conover et al. 2023)."""
    prompt = _instructed(row["instruction"], row["context"])
    return AskedRow(prompt, [row["response"]], said(row["category"]))


def _instructed(instruction: object, text: object) -> str:
    return "\n\n".join(filter(None, (said(instruction), said(text))))


NAMED_SETS: Mapping[str, NamedSet] = {
    "mmlu-pro": NamedSet(
        "TIGER-Lab/MMLU-Pro",
        "MIT",
        ("test", "validation"),
        QuestionForm(
            ("question", "options", "answer", "answer_index", "category"), _mmlu_pro, choice_of(10)
        ),
    ),
    "gsm8k": NamedSet(
        "openai/gsm8k",
        "MIT",
        ("train", "test"),
        QuestionForm(("question", "answer"), _gsm8k, "number", reply_tokens=300),
        config="main",
    ),
    "squad": NamedSet(
        "rajpurkar/squad",
        "CC-BY-SA-4.0",
        ("train", "validation"),
        QuestionForm(("context", "question", "answers"), _squad, "normalised"),
    ),
    "alpaca": NamedSet(
        "tatsu-lab/alpaca",
        "CC-BY-NC-4.0",
        ("train",),
        QuestionForm(("instruction", "input", "output"), _alpaca, "normalised", reply_tokens=256),
        is_open=True,
    ),
    "dolly": NamedSet(
        "databricks/databricks-dolly-15k",
        "CC-BY-SA-3.0",
        ("train",),
        QuestionForm(
            ("instruction", "context", "response", "category"),
            _dolly,
            "normalised",
            reply_tokens=256,
        ),
        is_open=True,
    ),
}
"""By the name that is typed."""


FEWEST_COLUMNS = 3
"""Columns that a set must have to be known by them: question and answer alone say nothing."""


def set_with_columns(columns: Collection[str]) -> str | None:
    """The named set that a table with these columns is most likely to come from, or None."""
    fitting = {
        name: len(entry.form.columns)
        for name, entry in NAMED_SETS.items()
        if len(entry.form.columns) >= FEWEST_COLUMNS and set(entry.form.columns) <= set(columns)
    }
    return max(fitting, key=fitting.__getitem__, default=None)
