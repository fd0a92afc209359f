"""How far a suite is: a bar for every stage on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress

    from symbiont_ecology.experiments.jobs import Job
    from symbiont_ecology.experiments.suite import JobCallback

PARTS = 20
"""Lines of a stage, at most."""


@contextmanager
def stages() -> Iterator[Callable[[str, int], JobCallback]]:
    """What ``run_suite`` calls for every stage: its name and number of jobs give its watcher."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_lines
        return
    with _bars(console) as progress:
        yield partial(_bar, progress)


def print_lines(stage: str, jobs: int) -> JobCallback:
    """A line on stderr whenever another twentieth of the jobs is done, and one at the end.

    Jobs that were done before (in 0 seconds) do not count for the time that is left.
    """
    began, done, found, told = time.monotonic(), 0, 0, 0

    def advance(job: Job, seconds: float) -> None:
        """One more is done."""
        nonlocal done, found, told
        done, found = done + 1, found + (seconds == 0)
        part = done * PARTS // jobs
        if part == told or (seconds == 0 and done < jobs):
            return
        told, elapsed = part, time.monotonic() - began
        left = elapsed / max(done - found, 1) * (jobs - done)
        eta = f", about {clock(left)} to go" if done < jobs else ""
        text = (
            f"{stage}: {done} of {jobs} jobs ({100 * done // jobs} %) after {clock(elapsed)}{eta}"
        )
        print(text, file=sys.stderr, flush=True)

    return advance


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` where there are no hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _bars(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, TextColumn("ETA"), TimeRemainingColumn(), console=console)


def _bar(progress: Progress, stage: str, jobs: int) -> JobCallback:
    task = progress.add_task(stage, total=jobs)

    def advance(job: Job, seconds: float) -> None:
        """One more is done."""
        progress.update(task, advance=1, description=f"{stage}: {job.arm}")

    return advance
