"""The screen of a run: how it goes, who lives and serves whom, what was just replied, who was born
and died."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from symbiont_ecology.analysis.life_tables import (
    cell_table,
    legend,
    population_table,
    replies_table,
    servers_table,
)
from symbiont_ecology.analysis.narrator import ACCEPTED, RunView, percent_of
from symbiont_ecology.analysis.pace import Pace, RunLength
from symbiont_ecology.analysis.trends import Trend, sparkline
from symbiont_ecology.ecology import EcologyState, Organelle
from symbiont_ecology.events import GenerationEnded
from symbiont_ecology.transcripts import newest_transcripts

SCREEN_LINES = 11
"""Lines of the screen that are no organelles, replies, births or deaths."""
FRAME = 4
"""Columns of the frame."""
BESIDE_BLOCKS = 34
"""Columns of the screen that are not blocks of habitats."""
TALL, WIDE = 30, 110
"""Lines and columns of a screen that has room for more."""
SECONDS_BETWEEN_SCREENS = 0.1


class Dashboard(RunView):
    """A screen that is drawn anew after each generation, ten times in a second at most.

    ``replies`` is the file of the run's transcripts; replies are shown if there is one.
    """

    def __init__(
        self,
        plan: RunLength,
        console: Console,
        title: str,
        replies: Path | None = None,
        accepted: str = ACCEPTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._replies, self._accepted = console, replies, accepted
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._title, self._panel = title, Panel("", title=Text(title))
        self._pace, self._clock = Pace(plan, clock), clock
        self._right, self._alive, self._energy = Trend(), Trend(), Trend()
        self._known: Mapping[str, Organelle] | None = None
        self._ticker: deque[str] = deque(maxlen=5)
        self._waiting: tuple[EcologyState, GenerationEnded, float] | None = None
        self._drawn: float | None = None

    def __enter__(self) -> Dashboard:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if not any(error):  # else the state may be in the midst of a generation
            self._draw()
        self._live.stop()

    def tell(self, news: str) -> None:
        """As ``RunView``: on the empty screen, later in its title."""
        if self._drawn is None:
            self._show(Text(news))
        else:
            self._panel.title = Text(f"{self._title}: {news}")
            self._live.update(self._panel, refresh=True)

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Shows one generation, if the last screen is not too new."""
        self._pace.advance(state, seconds)
        self._right.add(summary.accuracy)
        self._alive.add(summary.population)
        self._energy.add(summary.energy_total / 1000)
        self._notice(state, summary)
        self._waiting = state, summary, seconds
        if self._drawn is None or self._clock() - self._drawn >= SECONDS_BETWEEN_SCREENS:
            self._draw()

    def _draw(self) -> None:
        """Draws the newest generation, unless that is done."""
        if self._waiting is not None:
            self._panel.title = Text(self._title)
            self._show(self._screen(*self._waiting))
            self._waiting, self._drawn = None, self._clock()

    def _show(self, renderable: RenderableType) -> None:
        self._panel.renderable = renderable
        self._live.update(self._panel, refresh=True)

    def _screen(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> Group:
        width, height = self._console.size
        is_tall, is_wide = height >= TALL, width >= WIDE
        reply_lines, news_lines = (4, 5) if is_tall else (2, 2)
        rows = max(3, height - SCREEN_LINES - reply_lines - news_lines)
        body = Table.grid(padding=(0, 2))
        if state.habitats:
            body.add_row(servers_table(state, rows, width - BESIDE_BLOCKS))
        else:
            population = population_table(state, rows, 2 if is_wide else 1)
            body.add_row(population, cell_table(state.success, rows))
        transcripts = [] if self._replies is None else newest_transcripts(self._replies)
        ticker = list(self._ticker)[-news_lines:] or ["nobody was born or died yet"]
        return Group(
            self._head(state, summary, seconds),
            _bar(self._pace.done),
            self._trends(state, summary, width - FRAME),
            Text(),
            body,
            Text(),
            replies_table(transcripts, reply_lines, width - FRAME),
            Text(),
            Text("\n".join(ticker), style="dim", no_wrap=True, overflow="ellipsis"),
            legend(bool(state.habitats)),
        )

    def _head(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> Text:
        habitats = len(state.habitats)
        facts = {
            "generation": f"{summary.generation}",
            "left": self._pace.left,
            "habitats" if habitats else "cells": f"{habitats or summary.coverage}",
            "FLOPs": f"{summary.train_flops:.2e}",
            "each": f"{seconds:.2f} s",
        }
        parts = (Text.assemble((f"{label} ", "dim"), value) for label, value in facts.items())
        return Text("   ").join(parts)

    def _trends(self, state: EcologyState, summary: GenerationEnded, width: int) -> Text:
        """The run so far: right or accepted answers, population and energy, each with its newest
        value."""
        right = self._accepted if state.habitats else "right"
        lines = (
            (right, self._right, percent_of(summary.accuracy), 1.0),
            ("alive", self._alive, f"{summary.population}", 0.0),
            ("energy", self._energy, f"{summary.energy_total / 1000:.0f} ATP", 0.0),
        )
        words = sum(len(label) + len(newest) + 5 for label, _, newest, _ in lines)
        room = max(4, (width - words) // len(lines))
        parts = (
            Text.assemble(
                (f"{label} ", "dim"),
                (sparkline(trend.points(room), high=high), "cyan"),
                f" {newest}",
            )
            for label, trend, newest, high in lines
        )
        return Text("   ").join(parts)

    def _notice(self, state: EcologyState, summary: GenerationEnded) -> None:
        served = state.served
        before = state.population if self._known is None else self._known  # founders are no news
        for organelle_id, organelle in state.population.items():
            if organelle_id not in before:
                origin = f"of {', '.join(organelle.parents)} " if organelle.parents else ""
                count = len(served.get(organelle_id, ()))
                origin += f"for {count} habitat{'s' if count > 1 else ''} " if count else ""
                self._ticker.append(
                    f"{summary.generation:4d}  {organelle_id} born {origin}({organelle.operator})"
                )
        for organelle_id in before.keys() - state.population.keys():
            age = summary.generation - before[organelle_id].born
            self._ticker.append(
                f"{summary.generation:4d}  {organelle_id} died, {age} generations old"
            )
        self._known = dict(state.population)


def _bar(share: float) -> Table:
    """A bar that ends its line, as a bar alone does not."""
    grid = Table.grid(expand=True)
    grid.add_row(ProgressBar(total=1.0, completed=share))
    return grid
