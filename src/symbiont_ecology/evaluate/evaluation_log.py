"""A run's log of evaluations: what was asked, who answered, and how much was right; a line each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from symbiont_ecology.base.errors import ConfigError, EcologyWarning, RunError
from symbiont_ecology.base.files import append_line, is_writable, read_lines
from symbiont_ecology.base.statistics import Interval
from symbiont_ecology.base.types import Item
from symbiont_ecology.evaluate.items import read_items, some_of
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun

EVALUATIONS_FILE = "evaluations.jsonl"


class EvaluationSpec(BaseModel):
    """All that decides an evaluation beside the run: what is asked, and who answers.

    Items come from a file (``holdout``, of which ``most_asked`` are used), or are drawn:
    ``per_cell`` of each cell of all ``shifts``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    holdout: Path | None = None
    most_asked: int | None = None
    shifts: tuple[str, ...] = ("in-distribution",)
    per_cell: int = 20
    routing: str = "learned"

    def items(self, run: LoadedRun) -> list[Item]:
        """Return what is asked.

        Raises:
            DataError: the file cannot be used.
            ConfigError: no such shift, or nothing in it that this run could be asked.
        """
        if self.holdout is not None:
            return run.as_asked(some_of(read_items(self.holdout), self.most_asked))
        if items := run.items(self.per_cell, self.shifts):
            return items
        raise ConfigError(
            "expected a shift with questions for this run's tasks, got "
            f"{', '.join(self.shifts)}, which have none: choose others"
        )


class LoggedEvaluation(BaseModel):
    """One line of the log, as far as it is read again; ``asked`` is a specification."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    generation: int
    routing: str
    accuracy: Interval
    asked: dict[str, Any]


def logged(folder: Path) -> Iterator[LoggedEvaluation]:
    """Yield the evaluations of a run. Lines that are no JSON are left out.

    Raises:
        RunError: a line is no evaluation of this version.
    """
    path = folder / EVALUATIONS_FILE
    for number, line in read_lines(path):
        try:
            yield LoggedEvaluation.model_validate(line)
        except ValidationError as error:
            fault = error.errors()[0]["msg"]
            raise RunError(f"{path} line {number}: {fault}: remove the line") from error


def log_evaluation(evaluation: Evaluation, run: LoadedRun, spec: EvaluationSpec) -> None:
    """Add an evaluation to the log of a run.

    A line that is there is not added again: who is killed and types a command again makes the same
    evaluations. Where the folder cannot be written, a warning says so.

    Raises:
        RunError: it cannot be written for another reason.
    """
    folder = run.folder
    if not is_writable(folder):
        warnings.warn(
            f"{folder} cannot be written: this evaluation is not kept there, --json FILE keeps it",
            EcologyWarning,
            stacklevel=2,
        )
        return
    asked = spec.model_dump(mode="json")
    line = json.loads(json.dumps({**evaluation.summary(), "asked": asked}))
    if all(row != line for _, row in read_lines(folder / EVALUATIONS_FILE)):
        append_line(folder / EVALUATIONS_FILE, line)
