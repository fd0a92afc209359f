"""``suite``: all arms of a protocol over all seeds, on every core, resumable at any moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symbiont_ecology.cli.live import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event

    from rich.progress import Progress

    from symbiont_ecology.evaluation.jobs import Job
    from symbiont_ecology.evaluation.protocol import Protocol

INTERRUPTED = 130


def suite(
    protocol: Annotated[str, typer.Argument(help="A protocol of config/protocols, or a YAML file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the suite; one that exists goes on.", show_default="artifacts/<name>"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time.", show_default="one per core")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the protocol, say the plan, do nothing.")
    ] = False,
) -> None:
    """Run the arms of a protocol over its seeds. Ctrl-C is safe, the same command goes on."""
    from symbiont_ecology.evaluation.protocol import load_protocol
    from symbiont_ecology.evaluation.suite import check_protocol, run_suite

    plan = load_protocol(protocol)
    check_protocol(plan)
    folder = out or Path("artifacts") / plan.name
    count = workers or os.cpu_count() or 1
    tell_plan(plan, folder, count)
    if dry_run:
        print("the protocol is fine; nothing was done")
        return
    stop = multiprocessing.get_context("spawn").Event()
    with _progress() as progress, _brake(stop):
        is_complete = run_suite(plan, folder, count, lambda name, jobs: _watcher(progress, name, jobs), stop)
    again = f"{typed()} suite {protocol}" + (f" --out {out}" if out else "")
    if not is_complete:
        typer.echo(f"stopped; nothing that was finished is lost. Go on with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    print(f"complete: {folder}\nnext:     {typed()} pack {folder}")


def tell_plan(plan: Protocol, folder: Path, workers: int) -> None:
    """What a suite would do."""
    from symbiont_ecology.evaluation.suite import tuning_jobs

    tuning = len(tuning_jobs(plan))
    runs = len(plan.arms) * len(plan.seeds) * (len(plan.budgets) + (plan.flip is not None))
    budgets = ", ".join(f"{budget * plan.unit_flops:.3g}" for budget in plan.budgets)
    print(f"protocol  {plan.name} ({plan.digest}): {plan.question}")
    print(f"arms      {', '.join(plan.arms)}")
    print(f"budgets   {budgets} useful training FLOPs")
    print(f"runs      {tuning} to tune, {runs} to report, {workers} at a time")
    print(f"folder    {folder}")


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("ETA"), TimeRemainingColumn(), console=Console(stderr=True))


def _watcher(progress: Progress, stage: str, jobs: int) -> Callable[[Job, float], None]:
    task = progress.add_task(stage, total=jobs)

    def advance(job: Job, seconds: float) -> None:
        """One more is done."""
        progress.update(task, advance=1, description=f"{stage}: {job.arm}")

    return advance


@contextmanager
def _brake(stop: Event) -> Iterator[None]:
    """Ctrl-C: the generations in flight are finished and saved."""

    def pull(number: int, frame: object) -> None:
        """Asks the workers to stop."""
        stop.set()
        os.write(2, b"\nfinishing the generations in flight\n")

    before = signal.signal(signal.SIGINT, pull)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
