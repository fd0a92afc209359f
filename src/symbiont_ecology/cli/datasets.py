"""``datasets``: data sets that are known by name, and tables of one's own, as files of
questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.console import command_line, print_table, table, tell_facts
from symbiont_ecology.cli.options import argument, option
from symbiont_ecology.errors import ConfigError, DataError, RunError
from symbiont_ecology.registry import did_you_mean, kind_of

if TYPE_CHECKING:
    from symbiont_ecology.tasks.question_tables import QuestionForm, QuestionTable
    from symbiont_ecology.tasks.tables import Row
    from symbiont_ecology.types import Item

QUESTION_PARTS = ("all", "train", "selection", "holdout")
GUESSES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "instruction", "input", "text"),
    "target": ("target", "answer", "completion", "response", "output", "label"),
    "options": ("options", "choices"),
    "context": ("context", "passage"),
    "category": ("category", "subject", "depth"),
}
"""Columns that are looked for where none is named, the likeliest first."""

OutOption = Annotated[Path, option("The JSONL file to write.")]
PartOption = Annotated[
    str, option("all, train, selection or holdout: parts that share no prompt, by hash.")
]
SamplesOption = Annotated[
    int | None, option("Write so many questions, drawn at random.", default="all", least=1)
]
SeedOption = Annotated[int, option("Another seed draws other questions.")]

datasets = typer.Typer(
    help="Data sets by name, and tables of your own, as files of questions.", no_args_is_help=True
)


@dataclass(frozen=True)
class _Wanted:
    """Which questions are written, and where."""

    out: Path
    part: str
    samples: int | None
    seed: int

    def __post_init__(self) -> None:
        if self.part not in QUESTION_PARTS:
            raise ConfigError(
                f"--part: expected one of {', '.join(QUESTION_PARTS)}, got {self.part!r}"
            )


@datasets.command("list")
def list_sets() -> None:
    """List the data sets that are known by name, and which of them are here."""
    from symbiont_ecology.tasks.named_sets import NAMED_SETS
    from symbiont_ecology.tasks.tables import cached_dataset

    rows = table("data set", "here", "licence", "splits", "right if")
    for column in rows.columns:
        column.justify = "left"
    cached = {name: cached_dataset(named_set.hub) for name, named_set in NAMED_SETS.items()}
    for name, named_set in NAMED_SETS.items():
        is_here = {True: "yes", False: "no", None: "?"}[cached[name]]
        kind = kind_of(named_set.form.grade) + (", open" if named_set.is_open else "")
        rows.add_row(name, is_here, named_set.licence, ", ".join(named_set.splits), kind)
    print_table(rows)
    print("on the hub, and its fields:")
    fields = {name: ", ".join(named_set.form.columns) for name, named_set in NAMED_SETS.items()}
    tell_facts({name: f"{named_set.hub}: {fields[name]}" for name, named_set in NAMED_SETS.items()})
    if None in cached.values():
        print("?: the package datasets is missing: pip install 'symbiont-ecology[data]'")
    print("open: so many replies are right that no grader can tell; for training and perplexity")
    print(f"one of them as a file: {command_line('datasets', 'get', 'NAME', '--out', 'FILE')}")


@datasets.command("get")
def get_set(
    name: Annotated[str, argument("As listed by symbiont datasets list.", "NAME")],
    out: OutOption,
    split: Annotated[
        str | None, option("A split of the data set, such as test.", default="its first")
    ] = None,
    part: PartOption = "all",
    samples: SamplesOption = None,
    seed: SeedOption = 0,
) -> None:
    """Write questions of a data set that is known by name. The first time needs the network."""
    from symbiont_ecology.tasks.named_sets import NAMED_SETS
    from symbiont_ecology.tasks.question_tables import question_table
    from symbiont_ecology.tasks.tables import rows_of_dataset

    choice = _Wanted(out, part, samples, seed)
    _check_set(name)
    named_set = NAMED_SETS[name]
    chosen = split or named_set.splits[0]
    if chosen.partition("[")[0] not in named_set.splits:
        raise ConfigError(f"--split: expected one of {', '.join(named_set.splits)}, got {chosen!r}")
    about = f"data set {name} ({named_set.hub}, {chosen})"
    try:
        rows = list(rows_of_dataset(named_set.hub, named_set.config, chosen, about))
    except DataError as error:
        raise DataError(
            f"{error}; get it once with the network, then it stays here, or bring a file of it: "
            f"{command_line('datasets', 'convert', 'FILE', '--like', name, '--out', out)}"
        ) from error
    _write(question_table(name, rows, named_set.form, about), choice, chosen)


@datasets.command("convert")
def convert_table(
    file: Annotated[Path, argument("A JSON, JSONL, CSV, TSV or Parquet file.", "FILE")],
    out: OutOption,
    like: Annotated[
        str | None, option("Columns as in this named set.", default="guessed", metavar="NAME")
    ] = None,
    name: Annotated[str | None, option("Family of the questions.", default="the file's")] = None,
    prompt: Annotated[str | None, option("Column of the prompts.", default="guessed")] = None,
    target: Annotated[
        str | None, option("Column of answers: text, letter or place from 0.", default="guessed")
    ] = None,
    options: Annotated[
        str | None, option("Column of the options, a list.", default="guessed")
    ] = None,
    context: Annotated[
        str | None, option("Column of a text in front of the prompt.", default="guessed")
    ] = None,
    category: Annotated[
        str | None, option("Column of the category, which becomes the depth.", default="guessed")
    ] = None,
    grade: Annotated[
        str | None, option("See symbiont list graders.", default="choice if options, else exact")
    ] = None,
    reply_tokens: Annotated[
        int | None, option("Most new tokens of a reply.", default="64, or the target's", least=1)
    ] = None,
    part: PartOption = "all",
    samples: SamplesOption = None,
    seed: SeedOption = 0,
) -> None:
    """Write the rows of a table as questions. What is guessed of its columns is printed."""
    from symbiont_ecology.tasks.named_sets import NAMED_SETS, set_with_columns
    from symbiont_ecology.tasks.question_tables import own_form, question_table
    from symbiont_ecology.tasks.tables import locate, rows_of_file

    choice = _Wanted(out, part, samples, seed)
    column_options = {
        "prompt": prompt,
        "target": target,
        "options": options,
        "context": context,
        "category": category,
    }
    own_columns = {key: column for key, column in column_options.items() if column is not None}
    if like is not None:
        _check_set(like)
        if own_columns or grade is not None or reply_tokens is not None:
            raise ConfigError("--like: expected no columns, grade or reply tokens beside it")
    about = str(file)
    rows = list(rows_of_file(locate(str(file), about)[0], about))
    columns = _columns(rows, about)
    if not own_columns and like is None and grade is None and reply_tokens is None:
        like = set_with_columns(columns)
    if part != "all" and not (name or like):
        raise ConfigError(
            "--part: expected --name beside it, since parts are made by name and prompt: give it "
            "to every file of the same data"
        )
    family = _family(name or like, file)
    if like is not None:
        form: QuestionForm = NAMED_SETS[like].form
        print(f"read like {like}: {', '.join(form.columns)}")
    else:
        guessed = _guessed(columns, own_columns, about)
        form = own_form(rows, **guessed, grade=grade, reply_tokens=reply_tokens)
        print("columns: " + ", ".join(f"{key} is {column}" for key, column in guessed.items()))
    _write(question_table(family, rows, form, about), choice, file.stem)


def _family(name: str | None, file: Path) -> str:
    """What the questions of a file are called."""
    from symbiont_ecology.tasks.data import check_name

    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-._")[:64]
    family = name or stem or "data"
    try:
        check_name(family)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error
    return family


def _check_set(name: str) -> None:
    from symbiont_ecology.tasks.named_sets import NAMED_SETS

    if name not in NAMED_SETS:
        raise ConfigError(
            f"no data set {name!r};{did_you_mean(name, NAMED_SETS)} known: "
            f"{', '.join(NAMED_SETS)}; any other table is a file for symbiont datasets convert"
        )


def _columns(rows: Sequence[Row], about: str) -> list[str]:
    """The columns of the first row."""
    first = rows[0][1] if rows else None
    if not isinstance(first, Mapping):
        raise DataError(f"{about}: expected rows with named columns, got {first!r:.40}")
    return [str(column) for column in first]


def _guessed(columns: Sequence[str], own_columns: Mapping[str, str], about: str) -> dict[str, str]:
    """A column for each use: the one that is named, else the likeliest; prompt and target must
    have one."""
    from symbiont_ecology.tasks.tables import named_columns

    uses = dict(own_columns)
    for key, likely in GUESSES.items():
        free = [column for column in likely if column in columns and column not in uses.values()]
        if key not in uses and free:
            uses[key] = free[0]
    for key in ("prompt", "target"):
        if key not in uses:
            raise ConfigError(
                f"{about}: cannot guess the column of the {key}s among {named_columns(columns)}: "
                f"name it with --{key}"
            )
    return uses


def _write(questions: QuestionTable, choice: _Wanted, source: str) -> None:
    """Writes the questions that are wanted, and says what they are."""
    from symbiont_ecology.evaluation.items import items_as_lines, some_of, write_items
    from symbiont_ecology.files import holds_other
    from symbiont_ecology.tasks.grading import graders

    task = questions.task
    items: list[Item] = [
        replace(task.item(line.question, line.depth), id=f"{task.name}/{source}/{number}")
        for number, line in enumerate(task.lines, 1)
        if choice.part in ("all", task.split(line))
    ]
    items = some_of(items, choice.samples, choice.seed)
    if not items:
        raise DataError(f"{task.source}: no question falls into the part {choice.part}: take all")
    if holds_other(choice.out, items_as_lines(items)):
        raise ConfigError(f"{choice.out} is there already: choose another --out")
    try:
        write_items(items, choice.out)
    except OSError as error:
        raise RunError(f"cannot write {choice.out}: {error.strerror}") from error
    if questions.left_out:
        reasons = ", ".join(f"{why} ({count})" for why, count in questions.left_out.most_common())
        print(f"rows left out: {reasons}")
    cells = len({item.cell for item in items})
    words = ("evaluate", "--adapter", "FOLDER", "--holdout", choice.out, "--compare")
    print(
        f"written: {choice.out}, {len(items)} of {len(task.lines)} questions of "
        f"{task.name}, categories: {cells}, right by {graders.name_of(task.grader)}\n"
        f"next:    {command_line(*words)}"
    )
