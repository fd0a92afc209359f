"""A run's log of evaluations: a line for each, and beside it what it takes to make it again.

``evaluated/`` holds the state that was asked (``<generation>.json``) and every file that was, under
the hash of its content: a run can be moved, and its evaluations go with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symbiont_ecology.config import find_data
from symbiont_ecology.ecology import state as checkpoint
from symbiont_ecology.ecology.state import KEPT
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.errors import EcologyError, RunError
from symbiont_ecology.evaluation.measure import Evaluation, LoadedRun
from symbiont_ecology.evaluation.spec import EvaluationSpec
from symbiont_ecology.files import append_line, read_lines
from symbiont_ecology.weights.peft_files import stated_rank

EVALUATIONS_FILE = "evaluations.jsonl"


def logged(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The evaluations of a run, with the numbers of their lines."""
    return read_lines(folder / EVALUATIONS_FILE)


def log_evaluation(evaluation: Evaluation, candidates: LoadedRun, asked: EvaluationSpec) -> None:
    """Adds an evaluation to the run's log, and keeps what it takes to make it again: state and
    files.

    Nothing else of the run changes.

    Raises:
        RunError: it cannot be written.
    """
    folder = candidates.folder
    checkpoint.keep_state(candidates.portfolio.state, folder)
    try:
        for name, digest in asked.files().items():
            _keep(find_data(Path(name)), folder / KEPT / digest)
    except OSError as error:
        raise RunError(
            f"cannot keep what was asked in {folder / KEPT}: {error.strerror}"
        ) from error
    append_line(folder / EVALUATIONS_FILE, {**evaluation.summary(), "asked": asked.record()})


@dataclass(frozen=True)
class RepeatedEvaluation:
    """An evaluation that was made again from its run's folder: what was right then, and is now."""

    line: int
    generation: int
    name: str
    then: float
    now: float = 0.0
    is_same: bool = False
    """Whether the questions and every single verdict are what they were."""
    problem: str = ""
    """Why it could not be made again."""


def widest_rank(folder: Path) -> int:
    """Of the adapters that were asked beside a run's own candidates; 0 where there are none."""
    kept = (
        folder / KEPT / record["asked"]["sha256"][adapter]
        for _, record in logged(folder)
        if (adapter := record["asked"]["adapter"]) is not None
    )
    return max((stated_rank(path) for path in kept if path.exists()), default=0)


def repeat_evaluations(folder: Path, host: Host) -> Iterator[RepeatedEvaluation]:
    """Makes every evaluation in a run's log again, without what its book of answers knows."""
    for number, record in logged(folder):
        then, generation = record["accuracy"]["estimate"], record["generation"]
        try:
            asked = EvaluationSpec.of_record(record["asked"], folder / KEPT)
            candidates = LoadedRun.of_run(folder, generation)
            if selection := asked.selected(candidates):
                candidates = candidates.reselected(selection, host, is_fresh=True)
            found = asked.answered(
                candidates, asked.questions(candidates), host, is_fresh=True
            ).summary()
        except EcologyError as error:
            yield RepeatedEvaluation(
                number, generation, record["routing"], then, problem=str(error)
            )
            continue
        is_same = all(found[key] == record[key] for key in ("questions_digest", "verdicts_digest"))
        yield RepeatedEvaluation(
            number, generation, asked.name, then, found["accuracy"]["estimate"], is_same
        )


def _keep(source: Path, target: Path) -> None:
    """Copies a file, or the adapter of a PEFT folder; whole or not at all."""
    if target.exists() or not source.exists():
        return
    target.parent.mkdir(exist_ok=True)
    half = target.with_name(f"{target.name}.new")
    if source.is_dir():
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for part in source.glob("adapter_*"):
            shutil.copyfile(part, half / part.name)
    else:
        shutil.copyfile(source, half)
    half.replace(target)
