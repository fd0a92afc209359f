"""A run's log of evaluations: a line for each, and beside it what it takes to make it again.

``evaluated/`` holds the state that was asked (``<generation>.json``) and every file that was, under
the hash of its content: a run can be moved, and its evaluations go with it.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from symbiont_ecology.adapters.peft_files import stated_rank
from symbiont_ecology.base.errors import EcologyError, EcologyWarning, RunError
from symbiont_ecology.base.files import (
    append_line,
    folder_made_whole,
    ignore_line,
    is_writable,
    read_lines,
    write_whole,
)
from symbiont_ecology.base.shipped import find_data
from symbiont_ecology.base.statistics import Interval
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import KEPT
from symbiont_ecology.evaluate.measure import Evaluation, LoadedRun
from symbiont_ecology.evaluate.spec import EvaluationRecord, EvaluationSpec
from symbiont_ecology.run.runtime import Host

EVALUATIONS_FILE = "evaluations.jsonl"


class LoggedEvaluation(BaseModel):
    """One line of the log, as far as it is read again."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    generation: int
    routing: str
    accuracy: Interval
    questions_digest: str
    verdicts_digest: str
    selection_flops: int
    selection_tokens: int
    asked: EvaluationRecord


def logged(
    folder: Path, damaged: Callable[[int], None] = ignore_line
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


def log_evaluation(evaluation: Evaluation, run: LoadedRun, spec: EvaluationSpec) -> None:
    """Add an evaluation to the run's log, and keeps state and files to make it again.

    Nothing else of the run changes. A line that is there is not added again: who is killed and
    types a command again makes the same evaluations. Where the folder cannot be written, a warning
    says so.

    Raises:
        RunError: it cannot be written for another reason.
    """
    folder, record = run.folder, EvaluationRecord.of(spec)
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
            for name, digest in record.sha256.items():
                _keep(find_data(Path(name)), folder / KEPT / digest)
    except OSError as error:
        raise RunError(
            f"cannot keep what was asked in {folder / KEPT}: {error.strerror}"
        ) from error
    line = {**evaluation.summary(), "asked": record.model_dump(mode="json")}
    as_read = json.loads(json.dumps(line))
    if all(row != as_read for _, row in read_lines(folder / EVALUATIONS_FILE)):
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


def widest_rank(folder: Path) -> int:
    """Return the largest rank of adapters that were asked beside a run's own; 0 without any."""
    paths = (
        folder / KEPT / line.asked.sha256[line.asked.adapter]
        for _, line in logged(folder)
        if line.asked.adapter is not None
    )
    return max((stated_rank(path) for path in paths if path.exists()), default=0)


def repeat_evaluations(
    folder: Path, host: Host, damaged: Callable[[int], None] = ignore_line
) -> Iterator[RepeatedEvaluation]:
    """Make every evaluation in a run's log again, without what its cache of answers knows; the
    numbers of damaged lines are told to ``damaged``."""
    for number, line in logged(folder, damaged):
        accuracy, generation = line.accuracy.estimate, line.generation
        try:
            spec = line.asked.with_kept_files(folder / KEPT)
            run = replace(LoadedRun.of_run(folder, generation), cache=None)
            if selection := spec.selection_items(run):
                run = run.reselected(selection, host)
            evaluation = spec.evaluate(run, spec.items(run), host)
        except EcologyError as error:
            yield RepeatedEvaluation(number, generation, line.routing, accuracy, problem=str(error))
            continue
        digests = evaluation.questions_digest, evaluation.verdicts_digest
        yield RepeatedEvaluation(
            number,
            generation,
            spec.name,
            accuracy,
            now=evaluation.accuracy().estimate,
            is_same=digests == (line.questions_digest, line.verdicts_digest),
        )


def _keep(source: Path, target: Path) -> None:
    """Copy a file, or the adapter of a PEFT folder; whole or not at all."""
    if target.exists() or not source.exists():
        return
    if source.is_file():
        target.parent.mkdir(exist_ok=True)
        write_whole(target, source.read_bytes())
        return
    with folder_made_whole(target) as half:
        for part in source.glob("adapter_*"):
            shutil.copyfile(part, half / part.name)
