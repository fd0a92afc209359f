"""How far a suite is: a bar for every stage on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from symbiont_ecology.experiments.jobs import Job
    from symbiont_ecology.experiments.suite import JobCallback

PARTS = 20
"""Lines of a stage, at most."""


@contextmanager
def stages() -> Iterator[Callable[[str, int], JobCallback]]:
    """What ``run_suite`` calls for every stage: its name and number of jobs give its watcher."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_lines
        return
    counts = (progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
    left = (progress.TextColumn("ETA"), progress.TimeRemainingColumn())
    text = progress.TextColumn("{task.description}")
    with progress.Progress(text, *counts, *left, console=console) as bars:

        def draw_bar(stage: str, jobs: int) -> JobCallback:
            """A bar that grows with every job."""
            task = bars.add_task(stage, total=jobs)
            return lambda job, seconds: bars.update(
                task, advance=1, description=f"{stage}: {job.arm}"
            )

        yield draw_bar


def print_lines(stage: str, jobs: int) -> JobCallback:
    """A line on stderr whenever another twentieth of the jobs is done, and one at the end.

    Jobs that were done before (in 0 seconds) do not count for the time that is left.
    """
    began, done, done_before, told = time.monotonic(), 0, 0, 0

    def advance(job: Job, seconds: float) -> None:
        """Counts another job."""
        nonlocal done, done_before, told
        done, done_before = done + 1, done_before + (seconds == 0)
        part = done * PARTS // jobs
        if part == told or (seconds == 0 and done < jobs):
            return
        told, elapsed = part, time.monotonic() - began
        left = elapsed / max(done - done_before, 1) * (jobs - done)
        eta = f", about {clock(left)} to go" if done < jobs else ""
        count = f"{done} of {jobs} jobs ({100 * done // jobs} %)"
        print(f"{stage}: {count} after {clock(elapsed)}{eta}", file=sys.stderr, flush=True)

    return advance


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` where there are no hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
