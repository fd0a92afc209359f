"""``data``: train, selection and holdout files of a task mix, which have no prompt in common."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from symbiont_ecology.cli.options import argument, option, split_words
from symbiont_ecology.errors import ConfigError, DataError, RunError

if TYPE_CHECKING:
    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.tasks.splits import Split
    from symbiont_ecology.types import Item

SFT_FILE = "train_sft.jsonl"
"""What supervised fine-tuning reads: a ``prompt`` and a ``completion`` per line."""


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
    depths: Annotated[str | None, option("Such as short,medium.", default="the config's")] = None,
    seed: Annotated[int, option("Another seed draws other lines of the same splits.")] = 0,
    sft: Annotated[
        bool, option(f"Also {SFT_FILE}: the train lines as prompt and completion.", "--sft")
    ] = False,
    dry_run: Annotated[
        bool, option("Check everything, count the lines, write nothing.", "--dry-run")
    ] = False,
) -> None:
    """Write questions with reference answers: three JSONL files that share no prompt. The same seed
    gives the same files."""
    from symbiont_ecology.engine.build import mixture
    from symbiont_ecology.evaluation.items import draw_items
    from symbiont_ecology.files import holds_other, write_whole

    counts = _counts(per_cell)
    tasks = mixture(_config(words, depths))
    drawn = {split: draw_items(tasks, count, seed, split) for split, count in counts.items()}
    check_apart(drawn)
    texts = _texts(drawn, with_sft=sft)
    if taken := [name for name, text in texts.items() if holds_other(out / name, text)]:
        raise ConfigError(f"{out} holds {', '.join(taken)} already: choose another --out")
    _tell(drawn, counts, [f"{name}/{depth}" for name, depth in tasks.cells])
    files = ", ".join(str(out / name) for name in texts)
    if dry_run:
        print(f"would be written: {files}; nothing was done")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write to {out}: {error.strerror}") from error
    for name, text in texts.items():
        write_whole(out / name, text)
    print(f"written: {files}")


def _texts(drawn: Mapping[Split, Sequence[Item]], *, with_sft: bool) -> dict[str, str]:
    """What is written, by the names of the files."""
    from symbiont_ecology.evaluation.items import items_as_lines
    from symbiont_ecology.types import last_turn

    texts = {f"{split}.jsonl": items_as_lines(questions) for split, questions in drawn.items()}
    if with_sft:
        lessons = (
            {"prompt": last_turn(item.prompt), "completion": item.answer} for item in drawn["train"]
        )
        lines = (json.dumps(lesson, ensure_ascii=False) + "\n" for lesson in lessons)
        texts[SFT_FILE] = "".join(lines)
    return texts


def check_apart(drawn: Mapping[Split, Sequence[Item]]) -> None:
    """Makes sure that no prompt is in two splits.

    Raises:
        DataError: one is.
    """
    from symbiont_ecology.types import last_turn

    home: dict[str, tuple[Split, Item]] = {}
    for split, questions in drawn.items():
        for question in questions:
            part, first = home.setdefault(last_turn(question.prompt), (split, question))
            if part != split:
                raise DataError(
                    f"the prompt {question.prompt!r:.60} is in {part} ({first.family}) and in "
                    f"{split} ({question.family}): take one of the families out"
                )


def _config(words: list[str], depths: str | None) -> RunConfig:
    """The config whose task mix is meant."""
    from symbiont_ecology.config import compose
    from symbiont_ecology.registry import did_you_mean
    from symbiont_ecology.shipped import presets
    from symbiont_ecology.tasks import tasks

    names, overrides = split_words(words)
    if depths is not None:
        overrides.append(f"tasks.depths=[{depths}]")
    families, preset_files = tasks.names(), presets()
    unknown = [name for name in names if name not in families]
    if len(names) == 1 and unknown:
        (name,) = names
        shipped = {*preset_files, *(key.rpartition("/")[2] for key in preset_files)}
        if name in shipped or name.endswith((".yaml", ".yml")):
            return compose(names, overrides, f"config {name!r}")
    if unknown:
        kinds = "task family, preset or YAML file" if len(names) == 1 else "task family"
        hint = did_you_mean(unknown[0], [*families, *preset_files])
        raise ConfigError(
            f"data: {unknown[0]!r} is no {kinds};{hint} see symbiont list tasks and "
            "symbiont list presets"
        )
    mix = [f"tasks.families=[{','.join(names)}]"] if names else []
    return compose((), (*mix, *overrides), "data")


def _counts(per_cell: str) -> dict[Split, int]:
    """How many lines of every cell each split gets."""
    parts = per_cell.split(",")
    if len(parts) not in (1, 3) or not all(n.strip().isdecimal() and int(n) for n in parts):
        raise ConfigError(
            f"--per-cell: expected a number from 1, or three as in 20,4,10, got {per_cell!r}"
        )
    train, selection, holdout = map(int, parts * (3 // len(parts)))
    return {"train": train, "selection": selection, "holdout": holdout}


def _tell(
    drawn: Mapping[Split, Sequence[Item]], counts: Mapping[Split, int], cells: Sequence[str]
) -> None:
    """Lines per cell and split; on stderr, cells that have fewer than was asked for."""
    lines = {
        split: Counter("/".join(q.cell) for q in questions) for split, questions in drawn.items()
    }
    rows = {cell: [lines[split][cell] for split in drawn] for cell in cells}
    rows["all"] = [len(questions) for questions in drawn.values()]
    width = max(map(len, (*cells, "cell")))
    print(f"{'cell':{width}s}" + "".join(f"{split:>11s}" for split in drawn))
    for name, row in rows.items():
        print(f"{name:{width}s}" + "".join(f"{number:>11d}" for number in row))
    for cell in cells:
        for split, count in counts.items():
            if (number := lines[split][cell]) < count:
                warning = f"{cell} has {number} different lines for {split}, not {count}"
                print(f"warning: {warning}", file=sys.stderr)
