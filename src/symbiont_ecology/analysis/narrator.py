"""What a run says while it lives: nothing, or a line every few seconds where no screen is."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from symbiont_ecology.analysis.pace import Pace, RunLength
from symbiont_ecology.analysis.trends import Trend
from symbiont_ecology.ecology import EcologyState
from symbiont_ecology.events import GenerationEnded

ACCEPTED, ACCEPTED_IN_LOG = "accepted", "accepted in the log"
"""What the share of right answers is called in a run with habitats, and in one that learns from a
log: there others answered."""
SECONDS_BETWEEN_LINES = 5.0


class RunView:
    """What a quiet run shows: nothing. Other views derive from it."""

    def __enter__(self) -> RunView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, news: str) -> None:
        """Says what is done before the first generation, and what takes long within one."""

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Shows one generation, which took so many seconds."""


class Narrator(RunView):
    """Prints a line every few seconds: behind the first generation, the last one, and some between
    them. ``news`` is where loading is told."""

    def __init__(
        self,
        plan: RunLength,
        console: Console,
        news: Console,
        accepted: str = ACCEPTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._news, self._accepted = console, news, accepted
        self._pace, self._clock = Pace(plan, clock), clock
        self._printed: float | None = None
        self._begin()

    def _begin(self) -> None:
        """A line begins: nothing has happened yet since the last one."""
        self._births = self._deaths = 0
        self._right, self._pending = Trend(), ""

    def __exit__(self, *_: object) -> None:
        self._print()

    def tell(self, news: str) -> None:
        """As ``RunView``."""
        self._news.print(news, highlight=False, markup=False, soft_wrap=True)

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Counts one generation, and prints a line if the last one is some seconds old."""
        self._pace.advance(state, seconds)
        self._births += summary.births
        self._deaths += summary.deaths
        self._right.add(summary.accuracy)
        self._pending = self._line(state, summary)
        if self._printed is None or self._clock() - self._printed >= SECONDS_BETWEEN_LINES:
            self._print()

    def _line(self, state: EcologyState, summary: GenerationEnded) -> str:
        served = state.served
        scope = f"serving {len(served)}" if served else f"cells {summary.coverage}"
        share = next(iter(self._right.points(1)))
        label = self._accepted if state.habitats else "right"
        right = "nothing asked" if share is None else f"{label} {percent_of(share)}"
        return (
            f"generation {summary.generation:4d}  {self._pace.done:4.0%}  left {self._pace.left}  "
            f"{right}  {summary.population} alive "
            f"+{self._births} -{self._deaths}  {scope}  FLOPs {summary.train_flops:.2g}"
        )

    def _print(self) -> None:
        if self._pending:
            self._console.print(self._pending, highlight=False, markup=False, soft_wrap=True)
            self._printed = self._clock()
            self._begin()


def percent_of(share: float | None) -> str:
    """A share in per cent; a dash where nobody was asked."""
    return "–" if share is None else f"{share:.0%}"
