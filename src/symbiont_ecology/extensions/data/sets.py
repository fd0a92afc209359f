"""Data sets that are known by name (``sets.json``): where they are on the hub, and what a row asks.

An entry says in the words of a task file of lm-evaluation-harness what its rows ask.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from symbiont_ecology.base.errors import DataError, MissingExtraError
from symbiont_ecology.base.registry import Spec
from symbiont_ecology.extensions.data.harness import HarnessFile, question_of
from symbiont_ecology.tasks.data import DataLine, DataTask, check_gradable
from symbiont_ecology.tasks.grading import graders
from symbiont_ecology.tasks.tables import Row, check_columns


class NamedSet(BaseModel):
    """A data set of the Hugging Face hub.

    ``hub`` is its id there, ``config`` its configuration (None: it has one). Of its own ``splits``
    the first is taken unless another is named. ``depth`` is a column whose words become cells.
    """

    about: str
    hub: str
    licence: str
    splits: tuple[str, ...]
    columns: tuple[str, ...]
    plan: HarnessFile
    depth: str = ""
    grade: Spec = "normalised"
    reply_tokens: int | None = None
    config: str | None = None


NAMED_SETS = {
    name: NamedSet(**entry)
    for name, entry in json.loads(Path(__file__).with_name("sets.json").read_text("utf-8")).items()
}
"""By the name that is typed."""


def rows_of_hub(name: str, config: str | None, split: str, about: str) -> Iterator[Row]:
    """Yield the rows of a split of a data set: a name on the hub, or a folder.

    Raises:
        DataError: it cannot be loaded; ``about`` begins the message.
        MissingExtraError: the package ``datasets`` is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("a data set", "datasets", "data") from error
    datasets.disable_progress_bars()
    try:
        # Since version 4 a data set cannot run code; pyproject.toml asks for that version.
        for number, row in enumerate(datasets.load_dataset(name, config, split=split), 1):
            yield f"row {number}", row
    except (datasets.exceptions.DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{about}: cannot be loaded: {error!s:.300}") from error


def questions_of(name: str, rows: Iterable[Row], about: str) -> tuple[DataTask, Counter[str]]:
    """Return the questions of a set, and how many rows were left out for which reason.

    Raises:
        DataError: a row lacks a column, nothing can be asked, or the grader cannot use an answer;
            ``about`` begins the message.
    """
    named, lines, left_out = NAMED_SETS[name], dict[str, DataLine](), Counter[str]()
    for place, row in rows:
        check_columns(row, named.columns, f"{about} {place}", f"is it {named.hub}?")
        category = re.sub(r"[^\w.-]+", "-", str(row.get(named.depth) or "")).strip("-")
        try:
            line, _ = question_of(named.plan, {**row, "depth": category}, "")
        except DataError as error:  # such as an empty prompt, or an answer that is no option
            left_out[str(error).partition(", got")[0].strip()] += 1
            continue
        line = replace(line, prompt=line.prompt.strip())
        left_out["the same prompt again"] += line.prompt in lines
        lines.setdefault(line.prompt, line)
    if not lines:
        raise DataError(f"{about}: expected questions, found none: {', '.join(left_out)}")
    grader, tokens = graders.build(named.grade), named.reply_tokens
    task = DataTask(name, tuple(lines.values()), about, grader, tokens)
    check_gradable((about, task.item(line.question, line.depth)) for line in lines.values())
    return task, +left_out  # without reasons that never came
