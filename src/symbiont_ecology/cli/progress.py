"""The progress of a run on the terminal: a line for each generation, and below it a bar with the
time to go."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from symbiont_ecology.base.events import GenerationEnded
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.run.config import LoopConfig

ACCEPTED, ACCEPTED_IN_LOG = "accepted", "accepted in the log"
"""Name of the share of right answers in a run with users, and in one that learns from a log: there
others answered."""
PACE_SECONDS = 3600.0
"""The time to go follows from the pace of so many seconds."""


class RunProgress:
    """Prints generations on ``console``. News go to the bar, or to stderr where there is none.

    ``seconds`` were lived before this sitting.
    """

    def __init__(
        self,
        loop: LoopConfig,
        seconds: float = 0.0,
        accepted: str = ACCEPTED,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop, self._seconds, self._accepted = loop, seconds, accepted
        self._console = console or Console()
        self._errors = Console(stderr=True, quiet=self._console.quiet)
        is_terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self.has_bar = is_terminal and not self._console.quiet
        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            disable=not self.has_bar,
            get_time=clock,
            speed_estimate_period=PACE_SECONDS,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, news: str) -> None:
        """Say what is done before the first generation, and what takes long within one."""
        if self.has_bar:
            self._bar.update(self._task, description=news)
        else:
            self._errors.print(news, highlight=False, markup=False, soft_wrap=True)

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Show one generation, which took so many seconds."""
        self._seconds += seconds
        done = fraction_done(self._loop, state, self._seconds)
        if self._bar.tasks[0].total is None:  # a run that goes on does not begin at 0 %
            self._bar.reset(self._task, total=1)
            self._bar.tasks[0].completed = done
        self._bar.update(self._task, completed=done, description="")
        line = self._line(state, summary, done)
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _line(self, state: EcologyState, summary: GenerationEnded, done: float) -> str:
        left = self._bar.tasks[0].time_remaining
        to_go = "?" if left is None else timedelta(seconds=round(left))
        label = self._accepted if state.habitats else "right"
        share = summary.accuracy
        right = "nothing asked" if share is None else f"{label} {share:.0%}"
        scope = f"serving {len(state.served)}" if state.served else f"cells {summary.coverage}"
        return (
            f"generation {summary.generation:4d}  {done:4.0%}  left {to_go}  {right}  "
            f"{summary.population} alive +{summary.births} -{summary.deaths}  {scope}  "
            f"FLOPs {summary.train_flops:.2g}"
        )


def fraction_done(loop: LoopConfig, state: EcologyState, seconds: float) -> float:
    """Return the part of a run's way that is done, in [0, 1]: of whichever end it reaches first.

    ``seconds`` of wall-clock time were lived.
    """
    spent = state.spent
    ways = (
        (state.generation, max(loop.generations, 1)),
        (spent.flops, loop.train_flops),
        (spent.flops, (loop.train_rollouts or 0) * state.mean_rollout_flops),
        (spent.tokens, loop.train_tokens),
        (seconds, loop.train_seconds),
    )
    return min(1.0, max(value / end for value, end in ways if end))
