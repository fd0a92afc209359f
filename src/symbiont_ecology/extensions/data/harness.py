"""Tasks of lm-evaluation-harness with local data: ``{kind: lm_eval, name: sci, path: sci.yaml}``.

The common part of its task files is read (Gao et al., EleutherAI), everything else is refused in
one line; the package itself is not needed. Nothing is downloaded, and no code of a task file runs:
of Jinja, only ``{{…}}`` with columns, their parts, lists, conditions and a few methods of texts.

The harness compares likelihoods of choices. Here a question of several choices is answered by a
reply: by the word, where the choices are fixed words such as yes and no, else by a letter. So
figures are not those of the harness.
"""

from __future__ import annotations

import ast
import json
import re
import string
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped, unused-ignore]
from pydantic import BaseModel, ConfigDict, PositiveInt

from symbiont_ecology.base.config_layers import parse_yaml
from symbiont_ecology.base.errors import ConfigError, DataError, EcologyWarning
from symbiont_ecology.base.files import Stamp
from symbiont_ecology.base.registry import Spec, validate
from symbiont_ecology.base.untrusted import read_regular
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import (
    DataLine,
    DataTask,
    add_line,
    check_gradable,
    check_name,
    line_of,
)
from symbiont_ecology.tasks.grading import MAX_REPLY_CHARS, Choice, Grader, graders
from symbiont_ecology.tasks.tables import as_written, check_columns, locate, rows_of_file

MAX_CHARS = 100_000
"""Of a task file, and of a text that a template makes."""
LETTERS = string.ascii_uppercase
"""Of listed choices."""
SAYS_NOTHING = re.compile(
    "task|task_alias|tag|group|group_alias|metadata|dataset_path|dataset_name|num_fewshot|repeats|"
    "fewshot_split|fewshot_config|fewshot_delimiter|target_delimiter|should_decontaminate|"
    "doc_to_decontamination_query|filter_list|training_split|validation_split|test_split"
)
"""Keys that change nothing here: solved examples come from the prompt style."""
PLACE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
METHODS: Mapping[str, Callable[..., object]] = {
    "strip": str.strip,
    "trim": str.strip,
    "lower": str.lower,
    "upper": str.upper,
    "capitalize": str.capitalize,
    "title": str.title,
    "index": lambda values, value: list(values).index(value),
}
"""Methods and filters of templates. None makes a long text of a short one."""


IGNORED = {"ignore_case", "ignore_punctuation"}
"""Knobs of exact_match with which replies are judged by ``normalised``."""


class DataPlaces(BaseModel):
    """Place of the data, as a task file says it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    data_files: str | list[str] | dict[str, str | list[str]] | None = None


class HarnessFile(BaseModel):
    """The keys of a task file that are used here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    doc_to_text: str
    doc_to_target: str | int | list[str | int]
    doc_to_choice: str | list[str] | dict[str, str] | None = None
    output_type: Literal["generate_until", "multiple_choice"] = "generate_until"
    description: str = ""
    cue: str = "Answer:"  # behind listed choices
    dataset_kwargs: DataPlaces = DataPlaces()
    generation_kwargs: dict[str, Any] = {}
    metric_list: list[dict[str, Any]] = []


@task_sources.register("lm_eval")
@dataclass(frozen=True)
class HarnessTasks:
    """Questions of a task file of lm-evaluation-harness, with data in a local file.

    doc_to_text, doc_to_target and doc_to_choice are columns or templates. A reply is judged before
    the first text of ``until``, for exact_match by the grader exact, or by normalised if case or
    punctuation is ignored. Where choices are fixed words, such as yes and no, the word is the
    answer; else they are listed with letters, and the letter is the answer. Solved examples come
    from the prompt style, and the hash of name and prompt decides the split.
    """

    name: str  # of the task: letters, digits, dots, dashes
    path: str  # .yaml file, from where the command is typed
    data: str | None = None  # JSON, JSONL, CSV, TSV or Parquet file; None: data_files of the task
    grade: Spec | None = None  # how a reply is judged; None is as metric_list says
    reply_tokens: PositiveInt | None = None  # longest reply; None is max_gen_toks, else as for file

    def __post_init__(self) -> None:
        check_name(self.name)

    def __str__(self) -> str:
        return f"task {self.name!r} ({self.path})"

    def task(self) -> DataTask:
        """Return the lines; read once, and again when a file has changed."""
        path, stamp = locate(self.path, str(self))
        plan = _task_file(path, stamp, str(self))
        names = self.data or plan.dataset_kwargs.data_files
        if not names or isinstance(names, dict):
            raise ConfigError(
                f"{self}: expected a local file, set data: questions.jsonl; nothing is downloaded"
            )
        files = []
        for name in [names] if isinstance(names, str) else names:
            beside = path.parent / name  # the task file, if it is not where the command is typed
            place = beside if not Path(name).exists() and beside.is_file() else name
            files.append(locate(str(place), f"{self}, data {name}"))
        return _read(json.dumps(vars(self)), path, stamp, tuple(files))


@dataclass(frozen=True)
class Until:
    """A grader of what a reply says before the first of some stop texts."""

    grader: Grader
    stops: tuple[str, ...]

    def __call__(self, reply: str, answer: str) -> object:
        text = reply.lstrip()[:MAX_REPLY_CHARS]
        ends = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        return self.grader(text[: min(ends, default=None)], answer)


@lru_cache(maxsize=16)
def _task_file(path: Path, stamp: Stamp, about: str) -> HarnessFile:
    """Return the checked keys of a task file; ``stamp`` changes with it."""
    try:
        text = read_regular(path, 1)
        tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{about}: cannot be read: {' '.join(str(error).split())}") from error
    tags = [token for token in tokens if isinstance(token, yaml.TagToken | yaml.AliasToken)]
    if len(text) > MAX_CHARS or tags:
        got = f"{tags[0].value!r:.60}" if tags else "more"
        raise DataError(
            f"{about}: expected at most {MAX_CHARS} characters without tags, which name code to "
            f"run, and references, got {got}: write values"
        )
    values = parse_yaml(text, about)
    if not isinstance(values, dict):
        raise DataError(f"{about}: expected keys with values, got {values!r:.60}")
    used = {key: value for key, value in values.items() if not SAYS_NOTHING.fullmatch(str(key))}
    if others := [str(key) for key in used if key not in HarnessFile.model_fields]:
        raise DataError(f"{about}: keys that are not supported: {', '.join(others)}")
    if "filter_list" in values:
        message = f"{about}: filter_list is not used; the grader finds the answer in a reply"
        warnings.warn(message, EcologyWarning, stacklevel=2)
    plan = validate(HarnessFile, {k: v for k, v in used.items() if v is not None}, about)
    if plan.output_type == "multiple_choice" and plan.doc_to_choice is None:
        raise DataError(f"{about}: missing key 'doc_to_choice', which multiple_choice asks for")
    return plan


@lru_cache(maxsize=16)
def _read(knobs: str, path: Path, stamp: Stamp, files: tuple[tuple[Path, Stamp], ...]) -> DataTask:
    """Return the checked lines of a source, which is given as JSON; stamps change with files."""
    source = HarnessTasks(**json.loads(knobs))
    about = str(source)
    plan = _task_file(path, stamp, about)
    stops, limit = _stops_and_limit(plan.generation_kwargs, about)
    lines: dict[str, tuple[str, DataLine]] = {}
    most_choices = 0
    for file, _ in files:
        for place, row in rows_of_file(file, f"{about}, data {file.name}"):
            where = f"{file.name} {place}"
            line, choices = question_of(plan, row, f"{about}, {where}", stops)
            add_line(lines, line, about, where)
            most_choices = max(most_choices, choices)
    if not lines:
        raise DataError(f"{about}: no lines; expected one object per line")
    grader: Grader
    if source.grade is None and plan.output_type == "multiple_choice":
        grader = Choice(_words(plan) or tuple(LETTERS[:most_choices]))
    else:
        grader = graders.build(source.grade or _metric(plan, about))
    if stops:
        grader = Until(grader, stops)
    task_lines = tuple(line for _, line in lines.values())
    task = DataTask(source.name, task_lines, about, grader, source.reply_tokens or limit)
    check_gradable(
        (f"{about} {where}", task.item(line.question, line.depth)) for where, line in lines.values()
    )
    return task


def question_of(
    plan: HarnessFile, row: Mapping[str, Any], where: str, stops: Sequence[str] = ()
) -> tuple[DataLine, int]:
    """Return a row as a line, and how many choices it lists.

    Raises:
        DataError: a column is missing or cannot be used; ``where`` begins the message.
    """
    text, target = _filled(plan.doc_to_text, row, f"{where} doc_to_text"), plan.doc_to_target
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where} doc_to_text: expected text, got {text!r:.40}")
    found = _filled(target, row, f"{where} doc_to_target") if isinstance(target, str) else target
    targets: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
    words, count = _words(plan), 0
    if plan.doc_to_choice is not None:
        choices = list(words) or _choices(plan.doc_to_choice, row, f"{where} doc_to_choice")
        numbers = [_index(one, choices, f"{where} doc_to_target") for one in targets]
        if not words and plan.output_type == "multiple_choice":
            count = len(choices)
            listed = [f"{LETTERS[n]}. {choice}" for n, choice in enumerate(choices)]
            question = text.rstrip().removesuffix("Answer:").removesuffix("Answer").rstrip()
            text, choices = "\n".join([question, *listed, plan.cue]), list(LETTERS)
        targets = [choices[number] for number in numbers]
    # An answer that a stop text cuts can never be given.
    golds = [one for one in targets if not any(stop in str(one) for stop in stops)]
    if not golds or None in golds:
        cut = f" without any of {list(stops)}" if stops else ""
        raise DataError(f"{where} doc_to_target: expected an answer{cut}, got {found!r:.40}")
    made = {"prompt": plan.description + text, "target": golds, "depth": row.get("depth")}
    line = line_of(made, "prompt", "target", f"{where} doc_to_target")
    return DataLine(line.depth, line.prompt, tuple(dict.fromkeys(line.answers))), count


def _choices(
    plan: str | list[str] | dict[str, str], row: Mapping[str, Any], where: str
) -> list[str]:
    parts = list(plan.values()) if isinstance(plan, dict) else plan
    choices = (
        _filled(parts, row, where)
        if isinstance(parts, str)
        else [_filled(part, row, where) if "{" in part else part for part in parts]
    )
    if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= len(LETTERS):
        raise DataError(f"{where}: expected 2 to {len(LETTERS)} texts, got {choices!r:.60}")
    return [str(choice).strip() for choice in choices]


def _index(target: object, choices: Sequence[str], where: str) -> int:
    """Return which choice a target means: by its text, or by its number from 0."""
    text = str(as_written(target)).strip().removesuffix(".0")  # a template of a float
    if isinstance(target, str) and target.strip() in choices:
        return choices.index(target.strip())
    if text.isdecimal() and int(text) < len(choices):
        return int(text)
    raise DataError(
        f"{where}: expected one of the {len(choices)} choices, or its number from 0, got "
        f"{target!r:.60}"
    )


def _words(plan: HarnessFile) -> tuple[str, ...]:
    """Return the choices, if they are fixed words; then the word is the answer."""
    choices = plan.doc_to_choice
    words = list(choices.values()) if isinstance(choices, dict) else choices
    is_fixed = isinstance(words, list) and all(re.fullmatch(r"\w+", word) for word in words)
    return tuple(words or ()) if is_fixed else ()


def _stops_and_limit(said: Mapping[str, Any], about: str) -> tuple[tuple[str, ...], int | None]:
    """Return the texts that end a reply, and its most new tokens."""
    until, limit = said.get("until") or [], said.get("max_gen_toks")
    stops = [until] if isinstance(until, str) else until
    is_fine = isinstance(stops, list) and (limit is None or (isinstance(limit, int) and limit > 0))
    if not is_fine or not all(isinstance(stop, str) and stop for stop in stops):
        raise DataError(
            f"{about}: generation_kwargs: expected texts as until and a number as max_gen_toks, "
            f"got {until!r:.40} and {limit!r:.40}"
        )
    return tuple(stops), limit


def _metric(plan: HarnessFile, about: str) -> str:
    """Return the grader that judges as the metric of a task file does."""
    metric, *others = plan.metric_list or [{"metric": "exact_match"}]
    words = ("metric", "aggregation", "higher_is_better")
    knobs = {key for key, value in metric.items() if value and key not in words}
    if others or metric.get("metric") != "exact_match" or knobs - IGNORED:
        raise DataError(
            f"{about}: metric_list: expected exact_match, with {', '.join(sorted(IGNORED))} or "
            f"nothing, got {plan.metric_list!r:.80}: set grade (symbiont list graders)"
        )
    return "normalised" if knobs else "exact"


def _filled(source: str, row: Mapping[str, Any], where: str) -> object:
    """Return what a column or a template says of a row: a text, or the value itself of a template
    that is one expression alone."""
    if source in row:
        return row[source]
    texts, length = PLACE.split(source), 0  # plain texts and expressions take turns
    if len(texts) == 1 or re.search(r"\{[{%#]|\}\}", "".join(texts[::2])):
        check_columns(row, [source], where, "name a column, or write a template of {{…}} alone")
    try:
        values = [_value(ast.parse(text.strip(), mode="eval").body, row) for text in texts[1::2]]
        if len(values) == 1 and not "".join(texts[::2]).strip():
            return values[0]
        for place, value in enumerate(values):
            texts[2 * place + 1] = "" if value is None else str(value)
            if (length := length + len(texts[2 * place + 1])) > MAX_CHARS:
                raise ValueError(f"more than {MAX_CHARS} characters")
    except (SyntaxError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{where}: cannot be filled in: {' '.join(str(error).split())}") from error
    return "".join(texts)


def _value(node: ast.expr, row: Mapping[str, Any]) -> Any:
    """Return the value of an expression of Jinja that Python writes alike. Nothing is run."""
    match node:
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.Name(id=name):
            if name not in row:
                raise LookupError(f"{name!r} is undefined")
            return row[name]
        case ast.List(elts=parts):
            return [_value(part, row) for part in parts]
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, row) else other, row)
        case ast.Attribute(value=inner, attr=key) if isinstance(
            held := _value(inner, row), Mapping
        ):
            return held[key]
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return _value(inner, row)[key]
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args, keywords=[]) if (
            name in METHODS
        ):
            return METHODS[name](_value(inner, row), *(_value(part, row) for part in args))
        case ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Name(id=name)) if name in METHODS:
            return METHODS[name](_value(inner, row))
    raise ValueError(f"{ast.unparse(node):.60} is not supported")
