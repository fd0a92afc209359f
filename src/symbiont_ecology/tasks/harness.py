"""Tasks of lm-evaluation-harness with local data: ``{kind: lm_eval, name: sci, path: sci.yaml}``.

The common part of its task files is read (Gao et al., EleutherAI); the package itself is not
needed. Nothing is downloaded, and no code of a task file runs. The harness compares likelihoods of
choices, and here a reply is judged (``tasks.harness_lines``): figures are not those of the harness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from pydantic import PositiveInt

from symbiont_ecology.errors import ConfigError, DataError
from symbiont_ecology.files import Stamp
from symbiont_ecology.registry import Spec
from symbiont_ecology.tasks import task_sources
from symbiont_ecology.tasks.data import DataLine, DataTask, add_line, check_gradable, check_name
from symbiont_ecology.tasks.harness_file import HarnessFile, read_task_file
from symbiont_ecology.tasks.harness_lines import HarnessReader
from symbiont_ecology.tasks.splits import Split
from symbiont_ecology.tasks.tables import locate, rows_of_file


@dataclass(frozen=True, eq=False, repr=False)
class HarnessTask(DataTask):
    """Lines of a task file. ``places`` are the splits of lines whose own split decides."""

    places: Mapping[str, Split] = field(default_factory=dict, kw_only=True)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all lines, of their splits, and of how a reply is judged."""
        parts = [super().digest, repr(self.grader), list(self.places.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def split(self, line: DataLine) -> Split:
        """As the task file says, else by hash. Nothing of its own training split is held out."""
        place, by_hash = self.places.get(line.question), super().split(line)
        if place == "train" and not self._has_selection:
            return "selection" if by_hash == "selection" else "train"
        return place or by_hash

    @cached_property
    def _has_selection(self) -> bool:
        return "selection" in self.places.values()


@task_sources.register("lm_eval")
@dataclass(frozen=True)
class HarnessTasks:
    """Questions of a task file of lm-evaluation-harness, with data in a local file.

    doc_to_text, doc_to_target and doc_to_choice are columns or Jinja templates. A reply is judged
    as exact_match says, before the first text of ``until``. Where choices are fixed words, such as
    yes and no, the word is the answer; else they are listed with letters, and the letter is the
    answer. Solved examples come from the prompt style. Where the task file names data files of its
    training and test splits, adapters train on the first and the second is held out; else the hash
    of name and prompt decides.
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

    def task(self) -> HarnessTask:
        """The lines; read once, and again when a file has changed."""
        path, stamp = locate(self.path, str(self))
        plan = read_task_file(path, stamp, str(self))
        files = tuple(
            (split, *locate(str(_beside(path, name)), f"{self}, data {name}"))
            for split, names in _data_files(self, plan)
            for name in names
        )
        return _read(json.dumps(vars(self)), path, stamp, files)


def _beside(task_file: Path, name: str) -> Path:
    """A data file from where the command is typed, else beside the task file."""
    neighbour = task_file.parent / name
    return neighbour if not Path(name).exists() and neighbour.is_file() else Path(name)


def _data_files(
    source: HarnessTasks, plan: HarnessFile
) -> list[tuple[Split | None, Sequence[str]]]:
    """The files to read, those that are held out first, each with the split of its lines; None is
    by hash."""
    paths = plan.dataset_kwargs.data_files
    if source.data is not None:
        return [(None, [source.data])]
    if paths is None:
        raise ConfigError(
            f"{source}: expected a local file, set data: questions.jsonl; nothing is downloaded"
        )
    if not isinstance(paths, dict):
        return [(None, _listed(paths))]
    files = {
        split: _listed(paths[split])
        for split in (plan.test_split, plan.validation_split, plan.training_split)
        if split in paths
    }
    if not files:
        raise ConfigError(
            f"{source}: data_files names {', '.join(paths)}: set training_split and test_split to "
            "some of these"
        )
    if plan.training_split not in files or len(files) == 1:
        return [(None, names) for names in files.values()]
    unseen: tuple[Split, ...] = ("holdout", "selection")
    return list(zip((*unseen[: len(files) - 1], "train"), files.values(), strict=True))


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


@lru_cache(maxsize=16)
def _read(
    knobs: str, path: Path, stamp: Stamp, files: tuple[tuple[Split | None, Path, Stamp], ...]
) -> HarnessTask:
    """The checked lines of a source, which is given as JSON; stamps change with the files."""
    source = HarnessTasks(**json.loads(knobs))
    about = str(source)
    plan = read_task_file(path, stamp, about)
    reader = HarnessReader(plan, about)
    lines: dict[str, tuple[str, DataLine]] = {}
    places: dict[str, Split] = {}
    most_choices = 0
    for split, file, _ in files:
        for row_place, row in rows_of_file(file, f"{about}, data {file.name}"):
            where = f"{file.name} {row_place}"
            line, choices = reader.line(row, f"{about}, {where}")
            add_line(lines, line, about, where)
            most_choices = max(most_choices, choices)
            if split is not None:
                # A prompt that is held out stays so, whatever other files say.
                places.setdefault(line.question, split)
    if not lines:
        raise DataError(f"{about}: no lines; expected one object per line")
    task = HarnessTask(
        source.name,
        tuple(line for _, line in lines.values()),
        about,
        reader.grader(source.grade, most_choices),
        tokens=source.reply_tokens or _most_tokens(plan, about),
        places=places,
    )
    check_gradable(
        (f"{about} {where}", task.item(line.question, line.depth)) for where, line in lines.values()
    )
    return task


def _most_tokens(plan: HarnessFile, about: str) -> int | None:
    """New tokens of a reply, if the task file says it."""
    most = plan.generation_kwargs.get("max_gen_toks")
    if most is None or (isinstance(most, int) and most > 0):
        return most
    raise DataError(f"{about}: generation_kwargs.max_gen_toks: expected a number, got {most!r:.40}")
