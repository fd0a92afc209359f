"""What commands share: what they print, the files that they write, and the host that they open."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from symbiont_ecology.errors import RunError

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.evaluation import evaluator
    from symbiont_ecology.evaluation.measure import Evaluation, EvaluationDifference
    from symbiont_ecology.statistics import Interval

MOST_ANSWERERS = 8
"""Organelles that a line on who answered names."""


def typed() -> str:
    """How this command was reached, so that a printed command can be typed as it is."""
    program = Path(sys.argv[0])
    if shutil.which("symbiont") or program.name != "symbiont":
        return "symbiont"
    near = os.path.relpath(program)
    return str(program) if near.startswith("..") else near


def table(*columns: str, title: str | None = None) -> Table:
    """A table whose first column is text, and whose others are numbers."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left", no_wrap=True)
    return made


def show(made: Table, stream: TextIO | None = None) -> None:
    """Prints a table, to stdout unless told otherwise."""
    Console(file=stream).print(made)


def tell_facts(facts: Mapping[str, str], stream: TextIO | None = None) -> None:
    """A line for every fact, with its label in front."""
    width = max(map(len, facts)) + 2
    for label, value in facts.items():
        print(f"{label:{width}s}{value}", file=stream)


def percent(interval: Interval) -> str:
    """An interval of shares in percent: ``43 % [37, 50]``."""
    return f"{100 * interval.estimate:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def points(difference: EvaluationDifference) -> str:
    """A difference of shares in points: ``+1.2 points [-0.3, +2.7]``."""
    estimate, low, high = (
        100 * value for value in (difference.estimate, difference.low, difference.high)
    )
    return f"{estimate:+.1f} points [{low:+.1f}, {high:+.1f}]"


def accuracy_table(evaluations: Mapping[str, Evaluation], title: str | None = None) -> Table:
    """Accuracy by family, one column per evaluation of the same items."""
    made = table("family", *evaluations, title=title)
    shares = [evaluation.by_family() for evaluation in evaluations.values()]
    for family in shares[0]:
        made.add_row(escape(family), *(percent(by_family[family]) for by_family in shares))
    totals = (percent(evaluation.accuracy()) for evaluation in evaluations.values())
    made.add_row("all", *totals, style="bold")
    return made


def tell_evaluation(evaluation: Evaluation, stream: TextIO | None = None) -> None:
    """A table of accuracies and one line on who answered."""
    show(accuracy_table({"right, with 95 % interval": evaluation}), stream)
    tell_answerers(evaluation, stream)


def tell_answerers(evaluation: Evaluation, stream: TextIO | None) -> None:
    """Who answered, what it cost, and which verifiers failed."""
    ranked = evaluation.choices.most_common()
    shown = ", ".join(f"{name} {count}" for name, count in ranked[:MOST_ANSWERERS])
    more = " …" if len(ranked) > MOST_ANSWERERS else ""
    print(
        f"answered by: {shown}{more}; {len(evaluation.rollouts)} questions, "
        f"{evaluation.flops:.3g} useful FLOPs, {evaluation.flops_per_solved:.3g} per right answer",
        file=stream,
    )
    faults = {
        rollout.fault: rollout.item.family for rollout in evaluation.rollouts if rollout.fault
    }
    for fault, family in faults.items():
        print(f"warning: the verifier of {family} {fault}; that answer scored 0", file=stream)


def open_run(folder: Path, host: str | None = None, rank: int = 0) -> Run:
    """A run whose host may lie at another place, and has room for adapters of that rank.

    The fingerprint of a host decides whether it is the same.

    Raises:
        RunError: the folder holds no run.
    """
    from symbiont_ecology import Run
    from symbiont_ecology.engine.run import read_config

    config = read_config(folder)
    wide = {"model": host or config.host.model, "rank": max(rank, config.host.rank)}
    return Run(folder, config.model_copy(update={"host": config.host.model_copy(update=wide)}))


def text_stream(json_file: Path | None) -> TextIO:
    """Where text goes: not to stdout if that is for JSON alone."""
    return sys.stderr if str(json_file) == "-" else sys.stdout


def prepare(path: Path | None) -> None:
    """Makes the folder of a file, and sure that the file can be written; ``-`` can.

    Raises:
        RunError: it cannot.
    """
    if path is None or str(path) == "-":
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RunError(f"cannot write {path}: choose another place")


def write_json(path: Path | None, data: object) -> None:
    """Writes plain values as JSON to a file, to stdout for ``-``, nowhere for None.

    Raises:
        RunError: the file cannot be written.
    """
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    elif path is not None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr that is gone when it is done, and not shown where stderr is no terminal."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def asking() -> Iterator[evaluator.Progress]:
    """A count of the questions that were answered, on a terminal."""
    text = TextColumn("asking {task.completed:.0f} questions")
    with progress_bar(SpinnerColumn(), text, TimeElapsedColumn()) as bar:
        task = bar.add_task("asking", total=None)
        yield lambda count: bar.advance(task, count)
