"""``data`` and ``datasets``: files of questions with answers, to learn from and to ask."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.base.errors import ConfigError, DataError, RunError
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.cli.console import command_line
from symbiont_ecology.cli.options import DryRunOption, argument, option, split_words

if TYPE_CHECKING:
    from symbiont_ecology.base.types import Item
    from symbiont_ecology.tasks.splits import Split

SFT_FILE = "train_sft.jsonl"
"""Lines for supervised fine-tuning: a ``prompt`` and a ``completion`` each."""
PARTS = ("all", "train", "selection", "holdout")

datasets = typer.Typer(help="Known data sets as files of questions.", no_args_is_help=True)


@datasets.command("list")
def list_sets() -> None:
    """List the data sets that are known by name, and the columns of their rows."""
    from symbiont_ecology.extensions.data.sets import NAMED_SETS

    for name, one in NAMED_SETS.items():
        print(f"{name}: {one.about}")
        print(f"  {one.hub}, {one.licence}; splits {', '.join(one.splits)}")
        print(f"  columns {', '.join(one.columns)}")
    print("open: so many replies are right that no grader can tell; for training and perplexity")


@datasets.command("get")
def get_set(
    name: Annotated[str, argument("As listed by symbiont datasets list.", "NAME")],
    out: Annotated[Path, option("The JSONL file to write.")],
    split: Annotated[
        str | None, option("A split of the data set, such as test.", default="its first")
    ] = None,
    file: Annotated[
        Path | None, option("A JSON, JSONL, CSV or Parquet file of its rows.", default="the hub")
    ] = None,
    part: Annotated[
        str, option("all, train, selection or holdout: parts that share no prompt, by hash.")
    ] = "all",
    samples: Annotated[
        int | None, option("Write so many questions, drawn at random.", default="all", least=1)
    ] = None,
    seed: Annotated[int, option("Another seed draws other questions.")] = 0,
) -> None:
    """Write questions of a data set that is known by name. The first time needs the network."""
    from symbiont_ecology.evaluate.items import some_of
    from symbiont_ecology.extensions.data.sets import NAMED_SETS, questions_of
    from symbiont_ecology.extensions.data.writing import items_as_lines
    from symbiont_ecology.tasks.tables import locate, rows_of_dataset, rows_of_file

    if name not in NAMED_SETS:
        hint = did_you_mean(name, NAMED_SETS)
        raise ConfigError(f"no data set {name!r};{hint} known: {', '.join(NAMED_SETS)}")
    named = NAMED_SETS[name]
    chosen = split or named.splits[0]
    if chosen.partition("[")[0] not in named.splits:
        raise ConfigError(f"--split: expected one of {', '.join(named.splits)}, got {chosen!r}")
    if part not in PARTS:
        raise ConfigError(f"--part: expected one of {', '.join(PARTS)}, got {part!r}")
    if file is None:
        about = f"data set {name} ({named.hub}, {chosen}; --file reads one of your own)"
        rows = rows_of_dataset(named.hub, named.config, chosen, about)
    else:
        about = str(file)
        rows = rows_of_file(locate(about, about)[0], about)
    task, left_out = questions_of(name, rows, about)
    source = chosen if file is None else file.stem
    items = [
        replace(task.item(line.question, line.depth), id=f"{name}/{source}/{number}")
        for number, line in enumerate(task.lines, 1)
        if part in ("all", task.split(line))
    ]
    if not items:
        raise DataError(f"{about}: no question falls into the part {part}: take all")
    items = some_of(items, samples, seed)
    _write({out: items_as_lines(items)})
    if left_out:
        reasons = ", ".join(f"{why} ({count})" for why, count in left_out.most_common())
        print(f"rows left out: {reasons}")
    print(f"written: {out}, {len(items)} of {len(task.lines)} questions")
    words = ("evaluate", "--adapter", "FOLDER", "--holdout", out)
    print(f"next:    {command_line(*words)}")


def data(
    words: Annotated[
        list[str],
        argument(
            "A preset or YAML file, or names of task families; changes, such as seed=1.",
            "CONFIG|FAMILY… [KEY=VALUE]…",
        ),
    ],
    out: Annotated[Path, option("Folder for train, selection and holdout.jsonl.")],
    per_cell: Annotated[
        str, option("Lines of every cell: one number, or three for train, selection, holdout.")
    ] = "20",
    seed: Annotated[int, option("Another seed draws other lines of the same splits.")] = 0,
    sft: Annotated[
        bool, option(f"Also {SFT_FILE}: the train lines as prompt and completion.", "--sft")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Write questions with reference answers: three JSONL files that share no prompt. The same seed
    gives the same files."""
    from symbiont_ecology.base.types import last_turn
    from symbiont_ecology.evaluate.items import draw_items
    from symbiont_ecology.extensions.data.writing import items_as_lines
    from symbiont_ecology.run.build import mixture
    from symbiont_ecology.run.config import compose, load_config
    from symbiont_ecology.tasks import tasks as families

    counts = _counts(per_cell)
    names, changes = split_words(words)
    if len(names) == 1 and names[0] not in families.names():
        config = load_config(names[0], changes)
    else:
        config = compose((), (f"tasks.families=[{','.join(names)}]", *changes), "data")
    tasks = mixture(config)
    drawn = {split: draw_items(tasks, count, seed, split) for split, count in counts.items()}
    check_apart(drawn)
    texts = {out / f"{split}.jsonl": items_as_lines(items) for split, items in drawn.items()}
    if sft:
        lessons = [
            {"prompt": last_turn(item.prompt), "completion": item.answer} for item in drawn["train"]
        ]
        lines = (json.dumps(lesson, ensure_ascii=False) + "\n" for lesson in lessons)
        texts[out / SFT_FILE] = "".join(lines)
    if not dry_run:
        _write(texts)
    for split, items in drawn.items():
        cells = Counter(item.cell for item in items)
        print(f"{split}: {len(items)} lines of {len(cells)} cells")
        for family, depth in tasks.cells:
            if (number := cells[family, depth]) < counts[split]:
                few = f"{family}/{depth} has {number} different lines for {split}"
                print(f"warning: {few}, not {counts[split]}", file=sys.stderr)
    files = ", ".join(map(str, texts))
    print(f"would be written: {files}; nothing was done" if dry_run else f"written: {files}")


def _write(texts: Mapping[Path, str]) -> None:
    """Write files, none of which may hold something else."""
    from symbiont_ecology.base.files import holds_other, write_whole

    if taken := [str(path) for path, text in texts.items() if holds_other(path, text)]:
        raise ConfigError(f"{', '.join(taken)} is there already: choose another --out")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error
        write_whole(path, text)


def check_apart(drawn: Mapping[Split, Sequence[Item]]) -> None:
    """Make sure that no prompt is in two splits.

    Raises:
        DataError: one is.
    """
    from symbiont_ecology.base.types import last_turn

    home: dict[str, tuple[Split, Item]] = {}
    for split, questions in drawn.items():
        for question in questions:
            part, first = home.setdefault(last_turn(question.prompt), (split, question))
            if part != split:
                raise DataError(
                    f"the prompt {question.prompt!r:.60} is in {part} ({first.family}) and in "
                    f"{split} ({question.family}): take one of the families out"
                )


def _counts(per_cell: str) -> dict[Split, int]:
    """Return how many lines of every cell each split gets."""
    parts = per_cell.split(",")
    if len(parts) not in (1, 3) or not all(n.strip().isdecimal() and int(n) for n in parts):
        raise ConfigError(
            f"--per-cell: expected a number from 1, or three as in 20,4,10, got {per_cell!r}"
        )
    train, selection, holdout = map(int, parts * (3 // len(parts)))
    return {"train": train, "selection": selection, "holdout": holdout}
