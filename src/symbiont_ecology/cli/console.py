"""What commands share: options, files, progress, tables of accuracies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from symbiont_ecology.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from symbiont_ecology.config import RunConfig
    from symbiont_ecology.evaluation.baselines import BaselineComparison
    from symbiont_ecology.evaluation.evaluator import Progress
    from symbiont_ecology.evaluation.measure import Evaluation, EvaluationDifference
    from symbiont_ecology.statistics import Interval

MOST_ANSWERERS = 8
"""Organelles that a line on who answered names."""
RoutingOption = Annotated[str, typer.Option(help="Who answers: symbiont list routings.")]
ShiftOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What is drawn: symbiont list shifts. Repeat it for several.",
        show_default="in-distribution",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(help="Folder or name of the host.", show_default="the run's own, or embedded"),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write everything there as JSON; - is stdout.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, say the plan, do nothing.")
]


def table(*columns: str, title: str | None = None) -> Table:
    """A table whose first column is text, and whose others are numbers."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left", no_wrap=True)
    return made


def percent(interval: Interval) -> str:
    """An interval of shares in percent: ``43 % [37, 50]``."""
    return f"{100 * interval.estimate:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def points(difference: EvaluationDifference) -> str:
    """A difference of shares in points: ``+1.2 points [-0.3, +2.7]``."""
    estimate, low, high = (
        100 * value for value in (difference.estimate, difference.low, difference.high)
    )
    return f"{estimate:+.1f} points [{low:+.1f}, {high:+.1f}]"


def accuracy_table(
    evaluations: Sequence[Evaluation], *columns: str, title: str | None = None
) -> Table:
    """Accuracy by family, one column per evaluation of the same items."""
    from rich.markup import escape

    made = table("family", *columns, title=title)
    shares = [evaluation.by_family() for evaluation in evaluations]
    for family in shares[0]:
        made.add_row(escape(family), *(percent(by_family[family]) for by_family in shares))
    totals = (percent(evaluation.accuracy()) for evaluation in evaluations)
    made.add_row("all", *totals, style="bold")
    return made


def tell_comparison_with_baselines(comparison: BaselineComparison, stream: TextIO) -> None:
    """Accuracies by family and system, how the main one differs, and what it costs."""
    from rich.console import Console

    main, console = comparison.systems[comparison.main], Console(file=stream)
    console.print(accuracy_table(list(comparison.systems.values()), *comparison.systems))
    for name, apart in comparison.differences.items():
        tell(
            console,
            f"{comparison.main} - {name}: {points(apart)}, McNemar p = {apart.mcnemar_p:.2g}",
        )
    robust = comparison.robustness
    if robust is not None and robust.brittle is not None:
        share = percent(robust.brittle)
        tell(console, f"brittle: {share} of right answers do not survive another way of writing")
    if main.judged_by == "selection":
        cost = f"{main.selection.flops:.3g} useful FLOPs"
        tell(console, f"* candidates judged on selection questions, which took {cost}")
    else:
        tell(console, "single is chosen by practice; --selection FILE chooses on other questions")
    tell_answerers(main, console)


def tell_evaluation(evaluation: Evaluation, stream: TextIO) -> None:
    """A table of accuracies and one line on who answered."""
    from rich.console import Console

    console = Console(file=stream)
    console.print(accuracy_table([evaluation], "right, with 95 % interval"))
    tell_answerers(evaluation, console)


def tell_answerers(evaluation: Evaluation, console: Console) -> None:
    """Who answered, what it cost, and which verifiers failed."""
    ranked = evaluation.choices.most_common()
    shown = ", ".join(f"{name} {count}" for name, count in ranked[:MOST_ANSWERERS])
    more = " …" if len(ranked) > MOST_ANSWERERS else ""
    tell(
        console,
        f"answered by: {shown}{more}; {len(evaluation.rollouts)} questions, "
        f"{evaluation.flops:.3g} useful FLOPs, {evaluation.flops_per_solved:.3g} per right answer",
    )
    faults = {one.fault: one.item.family for one in evaluation.rollouts if one.fault}
    for fault, family in faults.items():
        tell(console, f"warning: the verifier of {family} {fault}; that answer scored 0")


def tell(console: Console, line: str) -> None:
    """A line of plain text, however long."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def on_host(config: RunConfig, host: str | None) -> RunConfig:
    """The config with the host at another place; its fingerprint decides whether it is the same."""
    if host is None:
        return config
    return config.model_copy(update={"host": config.host.model_copy(update={"model": host})})


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
    if path is None:
        return
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def asking() -> Iterator[Progress]:
    """A count of the questions that were answered, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("asking {task.completed:.0f} questions")
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Bar(
        SpinnerColumn(), text, TimeElapsedColumn(), console=console, transient=True, disable=hidden
    ) as bar:
        task = bar.add_task("asking", total=None)
        yield lambda count: bar.advance(task, count)
