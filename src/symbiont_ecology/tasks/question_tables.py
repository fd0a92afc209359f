"""Tables in many forms as questions: what a row asks, which replies are right, what is left out.

A *form* says which columns a table must have and what a row of it asks. ``tasks.named_sets`` has
one for every known data set; for any other table it is made of column names. What comes out is a
``DataTask``, so splits and grading are those of all data.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from symbiont_ecology.errors import DataError
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks.data import DataLine, DataTask, check_gradable, reference_answer
from symbiont_ecology.tasks.grading import graders
from symbiont_ecology.tasks.tables import Row, as_written, check_whole, no_column

OPTION_LETTERS = string.ascii_uppercase
"""Names of options; more of them are not asked."""
LETTER_WANTED = "Answer with the letter alone."
TableRow: TypeAlias = Mapping[str, Any]


class AskedRow(NamedTuple):
    """What a row asks, its reference answers as they stand there, and its category."""

    prompt: str
    answers: Sequence[object]
    category: str = ""


@dataclass(frozen=True)
class QuestionForm:
    """How the rows of a table become questions.

    ``asked`` raises ``ValueError`` with a short reason for a row that cannot be asked; such rows
    are left out and counted. ``reply_tokens`` is the largest number of new tokens; None is as for
    other data.
    """

    columns: tuple[str, ...]
    asked: Callable[[TableRow], AskedRow]
    grade: Spec = "exact"
    reply_tokens: int | None = None


@dataclass(frozen=True)
class QuestionTable:
    """The questions of a table, and how many rows were left out for which reason."""

    task: DataTask
    left_out: Counter[str] = field(default_factory=Counter)


def question_table(name: str, rows: Iterable[Row], form: QuestionForm, about: str) -> QuestionTable:
    """Reads a table. A prompt that comes again is left out, so no two questions are alike.

    Raises:
        DataError: a row lacks a column, nothing can be asked, or the grader cannot use an answer;
            ``about`` begins the message.
    """
    lines: dict[str, tuple[str, DataLine]] = {}
    left_out = Counter[str]()
    for where, row in rows:
        _check_columns(row, form, f"{about} {where}")
        assert isinstance(row, Mapping)
        try:
            line = _line(form.asked(row))
        except ValueError as error:
            left_out[str(error)] += 1
            continue
        entry = lines.setdefault(line.prompt.rstrip("\r\n"), (where, line))
        left_out["the same prompt again"] += entry[1] is not line
    left_out += Counter()  # without reasons that never came
    if not lines:
        reasons = ", ".join(left_out) or "it has no rows"
        raise DataError(f"{about}: expected questions, found none: {reasons}")
    questions = tuple(line for _, line in lines.values())
    task = DataTask(name, questions, about, graders.build(form.grade), tokens=form.reply_tokens)
    items = (
        (f"{about} {where}", task.item(line.question, line.depth)) for where, line in lines.values()
    )
    check_gradable(items)
    return QuestionTable(task, left_out)


def with_options(question: str, options: Sequence[object]) -> str:
    """A question of multiple choice with its options, each in a line behind its letter.

    Raises:
        ValueError: there are no options, or more than letters.
    """
    if not question:
        raise ValueError("no prompt")
    if not 2 <= len(options) <= len(OPTION_LETTERS):
        raise ValueError(f"no options, or more than {len(OPTION_LETTERS)}")
    lines = (
        f"{letter}. {str(text).strip()}"
        for letter, text in zip(OPTION_LETTERS, options, strict=False)
    )
    return "\n".join([question, *lines, LETTER_WANTED])


def chosen_letter(answer: object, options: Sequence[object]) -> str:
    """The letter of the right option, which a row names by place from 0, by letter or by its text.

    Raises:
        ValueError: it is none of the options.
    """
    answer, letters = as_written(answer), OPTION_LETTERS[: len(options)]
    texts = [str(option).strip() for option in options]
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(texts):
        return letters[answer]
    if isinstance(answer, str) and texts.count(answer.strip()) == 1:
        return letters[texts.index(answer.strip())]
    if isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip() in letters:
        return answer.strip()
    raise ValueError("the answer is none of the options")


def choice_of(most: int) -> Spec:
    """The grader of a choice among so many options."""
    return {"kind": "choice", "choices": list(OPTION_LETTERS[:most])}


def own_form(
    rows: Sequence[Row],
    prompt: str,
    target: str,
    *,
    options: str | None = None,
    context: str | None = None,
    category: str | None = None,
    grade: Spec | None = None,
    reply_tokens: int | None = None,
) -> QuestionForm:
    """The form of a table with these columns; one with options is a choice."""

    def asked(row: TableRow) -> AskedRow:
        """The context, the question and its options."""
        words, answer = said(row[prompt]), row[target]
        if words and context and (passage := said(row[context])):
            words = f"{passage}\n\n{words}"
        if options:
            texts = texts_of(row[options])
            words, answer = with_options(words, texts), chosen_letter(answer, texts)
        answers = answer if isinstance(answer, list) else [answer]
        topic = as_written(row[category]) if category else None
        return AskedRow(words, answers, "" if topic is None else str(topic))

    columns = (prompt, target, *(name for name in (options, context, category) if name))
    if options and grade is None:
        counts = (len(texts_of(row.get(options))) for _, row in rows if isinstance(row, Mapping))
        grade = choice_of(min(max(counts, default=2), len(OPTION_LETTERS)))
    return QuestionForm(columns, asked, grade or "exact", reply_tokens)


def said(value: object) -> str:
    """The text of a cell; empty if it is none."""
    return value.strip() if isinstance(value, str) else ""


def texts_of(cell: object) -> list[object]:
    """The texts of a cell: a list, or a mapping with a list under ``text``."""
    texts = cell.get("text") if isinstance(cell, Mapping) else cell
    return list(texts) if isinstance(texts, list | tuple) else []


def _line(row: AskedRow) -> DataLine:
    """A row as a line.

    Raises:
        ValueError: it has no prompt or no answer, or letters that cannot be written.
    """
    answers = tuple(dict.fromkeys(filter(None, map(reference_answer, row.answers))))
    if not row.prompt.strip():
        raise ValueError("no prompt")
    if not answers:
        raise ValueError("no answer")
    try:
        check_whole((row.prompt, *answers), "")
    except DataError as error:
        raise ValueError("letters that cannot be written") from error
    category = re.sub(r"[^\w.-]+", "-", row.category).strip("-")
    return DataLine(category or "short", row.prompt, answers)


def _check_columns(row: object, form: QuestionForm, where: str) -> None:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object, got {row!r:.40}")
    if missing := [name for name in form.columns if name not in row]:
        raise DataError(f"{where}: {no_column(missing[0], row)}")
