"""Tasks of lm-evaluation-harness: ``{kind: lm_eval, name: sci, path: sci.yaml, data: sci.jsonl}``.

What a task file asks is read (Gao et al., EleutherAI), and how it is asked: columns and templates.
The package itself is not needed, nothing is downloaded, and no code of a task file runs. Templates
have ``{{…}}`` with columns, their parts, lists, conditions and a few methods of texts.

The harness compares likelihoods of choices. Here a question of several choices is answered by a
reply: by the word, where the choices are fixed words such as yes and no, else by a letter. So
figures are not those of the harness.
"""

from __future__ import annotations

import json
import re
import string
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]
from pydantic import BaseModel, ConfigDict, PositiveInt

from symbiont_ecology.base.config_layers import parse_yaml
from symbiont_ecology.base.errors import DataError, EcologyWarning
from symbiont_ecology.base.files import Stamp
from symbiont_ecology.base.registry import Spec, validate
from symbiont_ecology.base.untrusted import read_regular
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import (
    DataLine,
    DataTask,
    TaskName,
    add_line,
    check_gradable,
    line_of,
)
from symbiont_ecology.tasks.grading import Choice, graders
from symbiont_ecology.tasks.tables import as_written, check_columns, locate, rows_of_file

LETTERS = string.ascii_uppercase
"""Of listed choices."""
SAYS_NOTHING = re.compile(
    "task.*|tag|group.*|metadata|dataset_.*|.*_split|num_fewshot|fewshot_.*|repeats|output_type|"
    "target_delimiter|.*decontamina.*"
)
"""Keys that change nothing here: solved examples come from the prompt style."""


class HarnessFile(BaseModel):
    """The keys of a task file that are used here."""

    model_config = ConfigDict(frozen=True)

    doc_to_text: str
    doc_to_target: str | int
    doc_to_choice: str | list[str] | None = None
    description: str = ""
    cue: str = "Answer:"  # behind listed choices

    @property
    def words(self) -> list[str]:
        """The choices, if they are fixed words; then the word is the answer."""
        choices = self.doc_to_choice
        is_fixed = isinstance(choices, list) and all(re.fullmatch(r"\w+", one) for one in choices)
        return list(choices or ()) if is_fixed else []


@task_sources.register("lm_eval")
@dataclass(frozen=True)
class HarnessTasks:
    """Questions of a task file of lm-evaluation-harness, with data in a local file.

    doc_to_text, doc_to_target and doc_to_choice are columns or templates. Where choices are fixed
    words, such as yes and no, the word is the answer; else they are listed with letters, and the
    letter is the answer. Solved examples come from the prompt style, and the hash of name and
    prompt decides the split.
    """

    name: TaskName  # of the task: letters, digits, dots, dashes
    path: str  # .yaml file, from where the command is typed
    data: str  # JSON, JSONL, CSV, TSV or Parquet file
    grade: Spec | None = None  # how a reply is judged; None is exact, or choice
    reply_tokens: PositiveInt | None = None  # longest reply; None is as for file

    def __str__(self) -> str:
        return f"task {self.name!r} ({self.path})"

    def task(self) -> DataTask:
        """Return the lines; read once, and again when a file has changed."""
        places = locate(self.path, str(self)), locate(self.data, f"{self}, data {self.data}")
        return _read(json.dumps(vars(self)), *places)


@lru_cache(maxsize=16)
def _read(knobs: str, file: tuple[Path, Stamp], data: tuple[Path, Stamp]) -> DataTask:
    """Return the checked lines of a source, which is given as JSON; stamps change with files."""
    source = HarnessTasks(**json.loads(knobs))
    about, lines, letters = str(source), dict[str, tuple[str, DataLine]](), 0
    plan = _task_file(file[0], about)
    for place, row in rows_of_file(data[0], f"{about}, data {data[0].name}"):
        where = f"{data[0].name} {place}"
        line, choices = question_of(plan, row, f"{about}, {where}")
        add_line(lines, line, about, where)
        letters = max(letters, choices)
    if not lines:
        raise DataError(f"{about}: no lines; expected one object per line")
    grader = graders.build(source.grade or "exact")
    if source.grade is None and plan.doc_to_choice is not None:
        grader = Choice(tuple(plan.words or LETTERS[:letters]))
    task_lines = tuple(line for _, line in lines.values())
    task = DataTask(source.name, task_lines, about, grader, source.reply_tokens)
    check_gradable(
        (f"{about} {where}", task.item(line.question, line.depth)) for where, line in lines.values()
    )
    return task


def _task_file(path: Path, about: str) -> HarnessFile:
    """Return the checked keys of a task file."""
    try:
        text = read_regular(path, 0.1)
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, yaml.SafeLoader)):
            raise ValueError("a few references can make any number of values: write the values")
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{about}: cannot be read: {' '.join(str(error).split())}") from error
    values = parse_yaml(text, about)
    if not isinstance(values, dict):
        raise DataError(f"{about}: expected keys with values, got {values!r:.60}")
    others = [str(key) for key in values if key not in HarnessFile.model_fields]
    if unread := [key for key in others if not SAYS_NOTHING.fullmatch(key)]:
        message = f"{about}: keys that are not read: {', '.join(unread)}"
        warnings.warn(message, EcologyWarning, stacklevel=2)
    return validate(HarnessFile, values, about)


def question_of(plan: HarnessFile, row: Mapping[str, Any], where: str) -> tuple[DataLine, int]:
    """Return a row as a line, and how many choices it lists.

    Raises:
        DataError: a column is missing or cannot be used; ``where`` begins the message.
    """
    text, target = _filled(plan.doc_to_text, row, f"{where} doc_to_text"), plan.doc_to_target
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where} doc_to_text: expected text, got {text!r:.40}")
    found = _filled(target, row, f"{where} doc_to_target") if isinstance(target, str) else target
    answers, count = list(found) if isinstance(found, list) else [found], 0
    if plan.doc_to_choice is not None:
        choices = plan.words or _choices(plan.doc_to_choice, row, f"{where} doc_to_choice")
        numbers = [_index(one, choices, f"{where} doc_to_target") for one in answers]
        if not plan.words:
            count = len(choices)
            listed = [f"{LETTERS[n]}. {choice}" for n, choice in enumerate(choices)]
            question = text.rstrip().removesuffix("Answer:").removesuffix("Answer").rstrip()
            text, choices = "\n".join([question, *listed, plan.cue]), list(LETTERS)
        answers = [choices[number] for number in numbers]
    made = {"prompt": plan.description + text, "target": answers, "depth": row.get("depth")}
    line = line_of(made, "prompt", "target", f"{where} doc_to_target")
    return DataLine(line.depth, line.prompt, tuple(dict.fromkeys(line.answers))), count


def _choices(plan: str | list[str], row: Mapping[str, Any], where: str) -> list[str]:
    choices = _filled(plan, row, where) if isinstance(plan, str) else plan
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise DataError(f"{where}: expected 2 to {len(LETTERS)} texts, got {choices!r:.60}")
    return [str(choice).strip() for choice in choices]


def _index(target: object, choices: Sequence[str], where: str) -> int:
    """Return which choice a target means: by its text, or by its number from 0."""
    text = str(as_written(target)).strip()
    if isinstance(target, str) and target.strip() in choices:
        return choices.index(target.strip())
    if text.isdecimal() and int(text) < len(choices):
        return int(text)
    raise DataError(
        f"{where}: expected one of the {len(choices)} choices, or its number from 0, got "
        f"{target!r:.60}"
    )


def _filled(source: str, row: Mapping[str, Any], where: str) -> object:
    """Return what a column or a template says of a row: a text, or the value itself of a template
    that is one expression alone."""
    if source in row or "{" not in source:
        check_columns(row, [source], where, "name a column, or write a template of {{…}}")
        return row[source]
    from symbiont_ecology.extensions.data.templates import filled  # jinja2 takes its time

    try:
        return filled(source.strip("\n"), row)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{where}: cannot be filled in: {' '.join(str(error).split())}") from error
