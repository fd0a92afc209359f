"""Tables, progress and files of commands, and the run that they open."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from symbiont_ecology import __version__
from symbiont_ecology.base.errors import RunError
from symbiont_ecology.base.files import write_whole

if TYPE_CHECKING:
    from symbiont_ecology import Run
    from symbiont_ecology.base.events import GenerationEnded
    from symbiont_ecology.base.statistics import Interval
    from symbiont_ecology.ecology import EcologyState
    from symbiont_ecology.evaluate import evaluator
    from symbiont_ecology.evaluate.measure import Evaluation, EvaluationDifference
    from symbiont_ecology.run.config import LoopConfig, RunConfig

MAX_ANSWERERS = 8
"""Organelles that a line on who answered names."""
MAX_TABLE_CHARS = 10_000
"""Of a line of a table."""


def command_line(*words: object) -> str:
    """Return a command of ours that can be typed as it is: what a shell would take apart is
    quoted."""
    return shlex.join(["symbiont", *map(str, words)])


def typed_again(folder: Path, out: Path | None) -> str:
    """Return the words that were typed, with the folder in which they go on."""
    return command_line(*sys.argv[1:2], *([] if out else ["--out", folder]), *sys.argv[2:])


def tell_loading(quiet: bool) -> None:
    """Print a first sign of life, before anything heavy is imported."""
    if not quiet:
        print(f"symbiont {__version__}: loading …", file=sys.stderr, flush=True)


def table(*columns: str, title: str | None = None) -> Table:
    """Return a table whose first column is text, and whose others are numbers."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        result.add_column(column, justify="right" if place else "left", no_wrap=True)
    return result


def print_table(made: Table) -> None:
    """Print a table, never cut: where it is wider than the terminal, the terminal breaks its
    lines."""
    Console(width=MAX_TABLE_CHARS).print(made)


def tell_facts(facts: Mapping[str, str]) -> None:
    """Print a line for every fact, with its label in front."""
    width = max(map(len, facts)) + 2
    for label, value in facts.items():
        print(f"{label:{width}s}{value}")


def percent(interval: Interval) -> str:
    """Return an interval of shares in percent: ``43 % [37, 50]``."""
    return f"{100 * interval.estimate:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def points(difference: EvaluationDifference) -> str:
    """Return a difference of shares in points: ``+1.2 points [-0.3, +2.7], McNemar p = 0.2, 9 won,
    4 lost``."""
    interval = f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    test = f"{difference.test} p = {difference.p:.2g}"
    changed = f"{difference.won} won, {difference.lost} lost"
    return f"{100 * difference.estimate:+.1f} points {interval}, {test}, {changed}"


def accuracy_table(evaluations: Mapping[str, Evaluation], title: str | None = None) -> Table:
    """Return accuracy by family, one column per evaluation of the same items."""
    rows = table("family", *evaluations, title=title)
    parts = [evaluation.families for evaluation in evaluations.values()]
    for family in parts[0]:
        rows.add_row(escape(family), *(percent(part[family].accuracy()) for part in parts))
    totals = (percent(evaluation.accuracy()) for evaluation in evaluations.values())
    rows.add_row("all", *totals, style="bold")
    return rows


def tell_answerers(evaluation: Evaluation) -> None:
    """Print who answered, what it cost, and which verifiers failed."""
    names = [f"{name} {count}" for name, count in evaluation.choices.most_common()]
    more = " …" if len(names) > MAX_ANSWERERS else ""
    print(
        f"answered by: {', '.join(names[:MAX_ANSWERERS])}{more}; {len(evaluation.rollouts)} "
        f"questions, {evaluation.flops:.3g} useful FLOPs, {evaluation.flops_per_solved:.3g} per "
        "right answer"
    )
    for family, fault in dict.fromkeys((r.item.family, r.fault) for r in evaluation.rollouts):
        if fault:
            print(f"warning: the verifier of {family} {fault}; that answer scored 0")


def open_run(folder: Path, host: str | None = None, rank: int = 0) -> Run:
    """Open a run whose host may lie at another place, and has room for adapters of that rank. Its
    kernel answers, so that no server need be there.

    The fingerprint of a host decides whether it is the same.

    Raises:
        RunError: the folder holds no run.
    """
    from symbiont_ecology import Run
    from symbiont_ecology.base.config_layers import host_layer
    from symbiont_ecology.run.open_run import read_config

    config = read_config(folder)
    model = host_layer(host)["host"]["model"] if host else config.host.model
    changes = {"model": model, "rank": max(rank, config.host.rank)}
    changes["engine"] = "kernel"
    return Run(folder, config.model_copy(update={"host": config.host.model_copy(update=changes)}))


@contextmanager
def report(json_file: Path | None, dry_run: bool = False) -> Iterator[Callable[[object], None]]:
    """Yield what writes JSON. Text goes to stdout, or to stderr where ``-`` keeps stdout for JSON.

    Unless it is a dry run, make sure at once that the file can be written.

    Raises:
        RunError: it cannot.
    """
    stdout, is_apart = sys.stdout, str(json_file) == "-"
    if json_file is not None and not is_apart and not dry_run:
        prepare(json_file)

    def write(data: object) -> None:
        if is_apart:
            stdout.write(_as_json(data))
        elif json_file is not None:
            write_json(json_file, data)

    with redirect_stdout(sys.stderr if is_apart else stdout):
        yield write


def prepare(path: Path) -> None:
    """Make the folder of a file, and sure that the file can be written.

    Raises:
        RunError: it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RunError(f"cannot write {path}: choose another place")


def write_json(path: Path, data: object) -> None:
    """Write plain values to a file, which is whole or not there; or through a link, or to a device
    such as a pipe, as they come."""
    if not path.is_symlink() and (path.is_file() or not path.exists()):
        write_whole(path, _as_json(data))
    else:
        path.write_text(_as_json(data), encoding="utf-8")


def _as_json(data: object) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@contextmanager
def asking() -> Iterator[evaluator.Progress]:
    """Count the questions that were answered, on a terminal."""
    what, screen = TextColumn("asking {task.completed:.0f} questions"), Console(stderr=True)
    columns, is_hidden = (SpinnerColumn(), what, TimeElapsedColumn()), not screen.is_terminal
    with Progress(*columns, console=screen, transient=True, disable=is_hidden) as bar:
        task = bar.add_task("asking", total=None)
        yield lambda count: bar.advance(task, count)


@dataclass
class RunProgress:
    """Prints a line for each generation, and on stderr what is done before the first one.

    ``seconds`` were lived before this sitting. The time to go follows from its pace.
    """

    config: RunConfig
    seconds: float = 0.0
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    _first: tuple[float, float] | None = None
    """Part that was done after the first generation of this sitting, and when that was."""

    def tell(self, news: str) -> None:
        """Say what is done before the first generation, and what takes long within one."""
        if not self.quiet:
            print(news, file=sys.stderr, flush=True)

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Show one generation, which took so many seconds."""
        if self.quiet:
            return
        self.seconds += seconds
        done, now = fraction_done(self.config.run, state, self.seconds), self.clock()
        done_first, began = self._first = self._first or (done, now)
        pace = (now - began) / (done - done_first) if done > done_first else None
        to_go = "?" if pace is None else timedelta(seconds=round((1 - done) * pace))
        label = "accepted" if state.users else "right"
        label += " in the log" * self.config.learns_from_log  # where others answered
        share = summary.accuracy
        right = "nothing asked" if share is None else f"{label} {share:.0%}"
        scope = f"serving {len(state.served)}" if state.served else f"cells {summary.coverage}"
        alive = f"{summary.population} alive +{summary.births} -{summary.deaths}"
        said = f"generation {summary.generation:4d}  {done:4.0%}  left {to_go}  {right}  {alive}"
        print(f"{said}  {scope}  FLOPs {summary.train_flops:.2g}", flush=True)


def fraction_done(loop: LoopConfig, state: EcologyState, seconds: float) -> float:
    """Return the part of a run's way that is done, in [0, 1]: of whichever end it reaches first.

    ``seconds`` of wall-clock time were lived.
    """
    spent = state.spent
    ways = (
        (state.generation, max(loop.generations, 1)),
        (spent.flops, loop.train_flops),
        (spent.tokens, loop.train_tokens),
        (seconds, loop.train_seconds),
    )
    return min(1.0, max(value / end for value, end in ways if end))
