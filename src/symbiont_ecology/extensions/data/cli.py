"""``data`` and ``datasets``: files of questions with answers, to learn from and to ask."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from symbiont_ecology.base.errors import ConfigError, DataError, RunError
from symbiont_ecology.base.registry import did_you_mean
from symbiont_ecology.cli.console import command_line
from symbiont_ecology.cli.options import argument, option, split_words

if TYPE_CHECKING:
    from symbiont_ecology.base.types import Item
    from symbiont_ecology.tasks.splits import Split

SFT_FILE = "train_sft.jsonl"
"""Lines for supervised fine-tuning: a ``prompt`` and a ``completion`` each."""
Part = Literal["all", "train", "selection", "holdout"]

datasets = typer.Typer(help="Known data sets as files of questions.", no_args_is_help=True)


@datasets.command("list")
def list_sets() -> None:
    """List the data sets that are known by name."""
    from symbiont_ecology.extensions.data.sets import NAMED_SETS

    for name, one in NAMED_SETS.items():
        print(f"{name}: {one.about}\n  {one.hub}, {one.licence}; splits {', '.join(one.splits)}")
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
    part: Annotated[Part, option("Parts that share no prompt, by hash.")] = "all",
) -> None:
    """Write questions of a data set that is known by name. The first time needs the network."""
    from symbiont_ecology.extensions.data.sets import NAMED_SETS, questions_of, rows_of_hub
    from symbiont_ecology.extensions.data.writing import items_as_lines
    from symbiont_ecology.tasks.tables import locate, rows_of_file

    if name not in NAMED_SETS:
        hint = did_you_mean(name, NAMED_SETS)
        raise ConfigError(f"no data set {name!r};{hint} known: {', '.join(NAMED_SETS)}")
    named, source = NAMED_SETS[name], split or NAMED_SETS[name].splits[0]
    if file is None:
        about = f"data set {name} ({named.hub}, {source}; --file reads one of your own)"
        rows = rows_of_hub(named.hub, named.config, source, about)
    else:
        about, source = str(file), file.stem
        rows = rows_of_file(locate(about, about)[0], about)
    task, left_out = questions_of(name, rows, about)
    items = [
        replace(task.item(line.question, line.depth), id=f"{name}/{source}/{number}")
        for number, line in enumerate(task.lines, 1)
        if part in ("all", task.split(line))
    ]
    if not items:
        raise DataError(f"{about}: no question falls into the part {part}: take all")
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
) -> None:
    """Write questions with reference answers: three JSONL files that share no prompt. The same seed
    gives the same files."""
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
    texts = {out / f"{split}.jsonl": items_as_lines(items) for split, items in drawn.items()}
    if sft:
        texts[out / SFT_FILE] = "".join(map(_lesson, drawn["train"]))
    _write(texts)
    for split, items in drawn.items():
        cells = Counter(item.cell for item in items)
        print(f"{split}: {len(items)} lines of {len(cells)} cells")
        for family, depth in tasks.cells:
            if (number := cells[family, depth]) < counts[split]:
                few = f"{family}/{depth} has {number} different lines for {split}"
                print(f"warning: {few}, not {counts[split]}", file=sys.stderr)
    print(f"written: {', '.join(map(str, texts))}")


def _lesson(item: Item) -> str:
    from symbiont_ecology.base.types import last_turn

    lesson = {"prompt": last_turn(item.prompt), "completion": item.answer}
    return json.dumps(lesson, ensure_ascii=False) + "\n"


def _write(texts: Mapping[Path, str]) -> None:
    """Write files, none of which may hold something else."""
    from symbiont_ecology.base.files import make_folder, write_whole

    if taken := [str(path) for path, text in texts.items() if _holds_other(path, text)]:
        raise ConfigError(f"{', '.join(taken)} is there already: choose another --out")
    for path, text in texts.items():
        try:
            make_folder(path.parent)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error
        write_whole(path, text)


def _holds_other(path: Path, text: str) -> bool:
    """Return true if something else has the name. A command that was killed and is typed again
    finds what it wrote: that is in nobody's way."""
    return path.exists() and not (path.is_file() and path.read_bytes() == text.encode())


def _counts(per_cell: str) -> dict[Split, int]:
    """Return how many lines of every cell each split gets."""
    if not re.fullmatch(r"0*[1-9]\d*(,0*[1-9]\d*){0,2}", per_cell) or per_cell.count(",") == 1:
        raise ConfigError(
            f"--per-cell: expected a number from 1, or three as in 20,4,10, got {per_cell!r}"
        )
    train, selection, holdout = map(int, (per_cell.split(",") * 3)[:3])
    return {"train": train, "selection": selection, "holdout": holdout}
