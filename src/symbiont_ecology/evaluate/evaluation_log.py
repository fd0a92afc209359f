"""A run's log of evaluations: a line for each, and beside it what it takes to make it again.

``evaluated/`` holds the state that was asked (``<generation>.json``) and the file of questions,
under the hash of its content: a run can be moved, and its evaluations go with it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from symbiont_ecology.base.errors import (
    ConfigError,
    DataError,
    EcologyError,
    EcologyWarning,
    RunError,
)
from symbiont_ecology.base.files import (
    append_line,
    content_hash,
    is_writable,
    read_lines,
    write_whole,
)
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.base.statistics import Interval
from symbiont_ecology.base.types import Item
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import KEPT
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.evaluate.items import read_items, some_of
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
from symbiont_ecology.run.runtime import Host

EVALUATIONS_FILE = "evaluations.jsonl"


class EvaluationSpec(BaseModel):
    """All that decides an evaluation beside the run: what is asked, and who answers.

    Items come from a file (``holdout``, of which ``most_asked`` are used), or are drawn:
    ``per_cell`` of each cell of all ``shifts``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    FILES: ClassVar[tuple[str, ...]] = ("holdout",)
    """Fields that name a file."""

    holdout: str | None = None
    most_asked: int | None = None
    shifts: tuple[str, ...] = ("in-distribution",)
    per_cell: int = 20
    routing: str | dict[str, Any] = "learned"

    def items(self, run: LoadedRun) -> list[Item]:
        """Return what is asked.

        Raises:
            DataError: the file cannot be used.
            ConfigError: no such shift, or nothing in it that this run could be asked.
        """
        if self.holdout is not None:
            return run.as_asked(some_of(read_items(Path(self.holdout)), self.most_asked))
        if items := run.items(self.per_cell, self.shifts):
            return items
        raise ConfigError(
            "expected a shift with questions for this run's tasks, got "
            f"{', '.join(self.shifts)}, which have none: choose others"
        )

    def evaluate(self, run: LoadedRun, host: Host, progress: Progress = no_progress) -> Evaluation:
        """Return the answers.

        Raises:
            HostError: the host is not the one that the run was founded with.
        """
        return run.evaluate(self.items(run), host, self.routing, progress=progress)

    @property
    def hashes(self) -> dict[str, str]:
        """Hash of the content of every file."""
        files = (getattr(self, name) for name in self.FILES)
        return {file: content_hash(find_data(Path(file))) for file in files if file is not None}


class LoggedEvaluation(BaseModel):
    """One line of the log, as far as it is read again; ``asked`` is a specification, and the
    hashes of its files under ``sha256``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    generation: int
    routing: str
    accuracy: Interval
    questions_digest: str
    verdicts_digest: str
    selection_flops: int = 0
    selection_tokens: int = 0
    asked: dict[str, Any]

    @property
    def is_plain(self) -> bool:
        """True if it can be made again; false for what extensions or earlier versions asked."""
        given = {name for name, value in self.asked.items() if value not in (None, 0)}
        return given <= {*EvaluationSpec.model_fields, "sha256"}

    def spec(self, folder: Path) -> EvaluationSpec:
        """Return the specification, with the file that a folder keeps under its hash.

        Raises:
            DataError: the file was not kept, and is not what it was.
        """
        fields = {name: self.asked[name] for name in EvaluationSpec.model_fields}
        if (file := fields["holdout"]) is not None:
            digest = self.asked["sha256"][file]
            copy = folder / digest
            fields["holdout"] = str(copy) if copy.exists() else file
            if content_hash(find_data(copy if copy.exists() else Path(file))) != digest:
                raise DataError(f"{file} is not the file that was asked: bring it back")
        return EvaluationSpec(**fields)


def logged(
    folder: Path, damaged: Callable[[int], object] = lambda number: None
) -> Iterator[tuple[int, LoggedEvaluation]]:
    """Yield the evaluations of a run, with the numbers of their lines. Lines that are no JSON are
    left out, and told to ``damaged``.

    Raises:
        RunError: a line is no evaluation of this version.
    """
    for number, line in read_lines(folder / EVALUATIONS_FILE, damaged):
        try:
            yield number, LoggedEvaluation.model_validate(line)
        except ValidationError as error:
            first = error.errors()[0]
            raise RunError(
                f"{folder / EVALUATIONS_FILE} line {number}: {first['msg']}: remove the line"
            ) from error


def log_evaluation(
    evaluation: Evaluation, run: LoadedRun, spec: EvaluationSpec, **more: int
) -> None:
    """Add an evaluation to the run's log, and keep state and files to make it again. ``more`` are
    further keys of its line.

    Nothing else of the run changes. A line that is there is not added again: who is killed and
    types a command again makes the same evaluations. Where the folder cannot be written, a warning
    says so.

    Raises:
        RunError: it cannot be written for another reason.
    """
    folder, hashes = run.folder, spec.hashes
    if not is_writable(folder):
        warnings.warn(
            f"{folder} cannot be written: this evaluation is not kept there, --json FILE keeps it",
            EcologyWarning,
            stacklevel=2,
        )
        return
    checkpoint.keep_state(run.pool.state, folder)
    try:
        with checkpoint.exclusive(folder):
            for name, digest in hashes.items():
                source, target = find_data(Path(name)), folder / KEPT / digest
                if source.is_file() and not target.exists():
                    target.parent.mkdir(exist_ok=True)
                    write_whole(target, source.read_bytes())
    except OSError as error:
        raise RunError(
            f"cannot keep what was asked in {folder / KEPT}: {error.strerror}"
        ) from error
    asked = {**spec.model_dump(mode="json"), "sha256": hashes}
    line = json.loads(json.dumps({**evaluation.summary(), **more, "asked": asked}))
    if all(row != line for _, row in read_lines(folder / EVALUATIONS_FILE)):
        append_line(folder / EVALUATIONS_FILE, line)


@dataclass(frozen=True)
class RepeatedEvaluation:
    """An evaluation that was made again from its run's folder: accuracy then and now.

    ``is_same`` says whether the items and every single verdict are what they were, ``problem`` why
    it could not be made again.
    """

    line: int
    generation: int
    name: str
    then: float
    now: float = 0.0
    is_same: bool = False
    problem: str = ""


def repeat_evaluations(
    folder: Path, host: Host, damaged: Callable[[int], object] = lambda number: None
) -> Iterator[RepeatedEvaluation]:
    """Make every plain evaluation in a run's log again, without what its cache of answers knows;
    the numbers of damaged lines are told to ``damaged``."""
    for number, line in logged(folder, damaged):
        if not line.is_plain:
            continue
        then = RepeatedEvaluation(number, line.generation, line.routing, line.accuracy.estimate)
        try:
            run = replace(LoadedRun.of_run(folder, line.generation), cache=None)
            evaluation = line.spec(folder / KEPT).evaluate(run, host)
        except EcologyError as error:
            yield replace(then, problem=str(error))
            continue
        digests = evaluation.questions_digest, evaluation.verdicts_digest
        is_same = digests == (line.questions_digest, line.verdicts_digest)
        yield replace(then, now=evaluation.accuracy().estimate, is_same=is_same)
