"""What a run shows while it lives: a live screen on a terminal, one line per generation
elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from symbiont_ecology.ecology import EcologyState, Habitat, Organelle, SuccessPosterior
from symbiont_ecology.events import GenerationEnded

SCREEN_LINES = 13
"""Lines of the screen that are not rows of the population."""
ACCEPTED, ACCEPTED_IN_LOG = "accepted", "accepted in the log"
"""What the share of right answers is called in a run with habitats, and in one that learns from a
log: there others answered."""
BESIDE_BLOCKS = 34
"""Columns of the screen that are not blocks of habitats."""
WIDE = 110
"""Columns from which an organelle's two best cells are shown, and not one."""


@dataclass(frozen=True)
class RunLength:
    """Where a run wants to go: whichever of the two ends it reaches first."""

    generations: int
    train_flops: float | None = None

    def fraction(self, generation: int, flops: int) -> float:
        """The part of the way that is done, in [0, 1]."""
        parts = [generation / max(self.generations, 1)]
        if self.train_flops is not None:
            parts.append(flops / self.train_flops)
        return min(1.0, max(parts))


class Narrator:
    """Prints a plain line after each generation."""

    def __init__(self, plan: RunLength, console: Console, accepted: str = ACCEPTED) -> None:
        self._plan, self._console, self._accepted = plan, console, accepted

    def __enter__(self) -> Narrator:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Shows one generation."""
        done, right = self._plan.fraction(state.generation, summary.train_flops), summary.accuracy
        served = state.served
        kept = f"serving {len(served):2d}" if served else f"cells {summary.coverage:2d}"
        self._console.print(
            f"generation {summary.generation:4d}  {done:4.0%}  {summary.population:3d} alive "
            f"+{summary.births} -{summary.deaths}  {self._accepted if served else 'right'} "
            f"{_percent(right):>4}  {kept}  FLOPs {summary.train_flops:.3g}  {seconds:.2f} s",
            highlight=False,
            soft_wrap=True,
        )


class Dashboard:
    """A screen that is drawn anew after each generation."""

    def __init__(
        self, plan: RunLength, console: Console, title: str, accepted: str = ACCEPTED
    ) -> None:
        self._plan, self._console, self._title, self._accepted = plan, console, title, accepted
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._alive: dict[str, Organelle] = {}
        self._ticker: deque[str] = deque(maxlen=5)
        self._began: tuple[float, float] | None = None  # fraction done and clock when first seen

    def __enter__(self) -> Dashboard:
        self._live.start()
        news = Text(f"{self._title}: loading the host and founding the population …")
        self._live.update(news, refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> None:
        """Shows one generation."""
        self._notice(state, summary)
        self._live.update(self.screen(state, summary, seconds), refresh=True)

    def screen(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> Panel:
        """Head line, population and cells or habitats, births and deaths."""
        body = Table.grid(padding=(0, 2))
        rows = max(4, self._console.height - SCREEN_LINES)
        if state.habitats:
            body.add_row(servers_table(state, rows, self._console.width - BESIDE_BLOCKS))
        else:
            shown = 2 if self._console.width >= WIDE else 1
            body.add_row(population_table(state, rows, shown), cell_table(state.success))
        news = Text("\n".join(self._ticker) or "nobody was born or died yet", style="dim")
        head = self._head(state, summary, seconds)
        return Panel(Group(head, Text(), body, Text(), news), title=self._title)

    def _head(self, state: EcologyState, summary: GenerationEnded, seconds: float) -> Group:
        done = self._plan.fraction(state.generation, summary.train_flops)
        habitats = len(state.habitats)
        facts = {
            "generation": f"{summary.generation}",
            self._accepted if habitats else "right": _percent(summary.accuracy),
            "habitats" if habitats else "cells": f"{habitats or summary.coverage}",
            "energy": f"{summary.energy_total / 1000:.0f} ATP",
            "FLOPs": f"{summary.train_flops:.2e}   {seconds:.2f} s",
            "left": self._left(done),
        }
        parts = (Text.assemble((f"{label} ", "dim"), value) for label, value in facts.items())
        return Group(Text("   ").join(parts), ProgressBar(total=1.0, completed=done))

    def _left(self, done: float) -> str:
        """Time to go at the pace of this sitting."""
        now = time.monotonic()
        if self._began is None:
            self._began = done, now
        start, clock = self._began
        if done <= start:
            return "?"
        seconds = (now - clock) * (1 - done) / (done - start)
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

    def _notice(self, state: EcologyState, summary: GenerationEnded) -> None:
        served = state.served
        for organelle_id, organelle in state.population.items():
            if organelle_id not in self._alive and self._alive:
                whence = f"of {', '.join(organelle.parents)} " if organelle.parents else ""
                count = len(served.get(organelle_id, ()))
                whence += f"for {count} habitat{'s' if count > 1 else ''} " if count else ""
                self._ticker.append(
                    f"{summary.generation:4d}  {organelle_id} born {whence}({organelle.operator})"
                )
        for organelle_id in self._alive.keys() - state.population.keys():
            age = summary.generation - self._alive[organelle_id].born
            self._ticker.append(
                f"{summary.generation:4d}  {organelle_id} died, {age} generations old"
            )
        self._alive = dict(state.population)


def population_table(state: EcologyState, rows: int, cells: int = 2) -> Table:
    """The richest organelles: age (generations), balance (ATP), step size, best cells and belief in
    them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width in (("id", 4), ("age", 3), ("ATP", 5), ("step", 6)):
        table.add_column(column, justify="right", no_wrap=True, min_width=width)
    table.add_column("best at", no_wrap=True)
    richest = sorted(
        state.population.values(), key=lambda organelle: -state.ledger.balance(organelle.id)
    )
    for organelle in richest[:rows]:
        rate = organelle.genome.traits.get("learning_rate")
        table.add_row(
            organelle.id,
            str(state.generation - organelle.born),
            f"{state.ledger.balance(organelle.id) / 1000:.1f}",
            "-" if rate is None else f"{rate:.4f}",
            best_cells(state.posteriors.get(organelle.id, {}), cells),
        )
    if len(richest) > rows:
        table.add_row("…", "", "", "", f"and {len(richest) - rows} more")
    return table


def servers_table(state: EcologyState, rows: int, width: int) -> Table:
    """Who serves how many habitats: a block for each, coloured by what it accepted lately."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("id", "age", "ATP", "accepted"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("serves", no_wrap=True)
    served = state.served
    everyone = sorted(state.population.values(), key=lambda one: -len(served.get(one.id, ())))
    for organelle in everyone[:rows]:
        habitats = [state.habitats[name] for name in served.get(organelle.id, ())]
        answers = [answer for habitat in habitats for answer in habitat.answers]
        accepted = [answer for answer in answers if answer.is_accepted]
        blocks = [_coloured(_share(habitat), "■") for habitat in habitats[: max(width, 1)]]
        table.add_row(
            organelle.id,
            str(state.generation - organelle.born),
            f"{state.ledger.balance(organelle.id) / 1000:.1f}",
            f"{len(accepted) / len(answers):.0%}" if answers else "–",
            Text.assemble(*blocks, f" {len(habitats)}") if habitats else Text("nobody", "dim"),
        )
    if len(everyone) > rows:
        table.add_row("…", "", "", "", f"and {len(everyone) - rows} more")
    return table


def _share(habitat: Habitat) -> float:
    """What a habitat accepted of its last answers."""
    return len(habitat.accepted) / max(len(habitat.answers), 1)


def best_cells(posteriors: Mapping[str, SuccessPosterior], count: int) -> str:
    """The cells of highest believed success, such as ``92% math.add/short``."""
    best = sorted(posteriors.items(), key=lambda entry: -entry[1].mean)[:count]
    return ", ".join(f"{posterior.mean:.0%} {cell}" for cell, posterior in best)


def cell_table(success: Mapping[str, float]) -> Table:
    """The population's moving average of success: one row per family, one column per depth."""
    depths = list(dict.fromkeys(cell.rpartition("/")[2] for cell in success))
    families = list(dict.fromkeys(cell.rpartition("/")[0] for cell in success))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family", no_wrap=True)
    for depth in depths:
        table.add_column(depth, justify="right")
    for family in families:
        shares = [success.get(f"{family}/{depth}") for depth in depths]
        table.add_row(family, *("" if share is None else _coloured(share) for share in shares))
    return table


def _coloured(share: float, text: str = "") -> Text:
    """The share, or another text, in the colour of the share."""
    colour = "red" if share < 0.33 else "yellow" if share < 0.67 else "green"
    return Text(text or f"{share:.0%}", style=colour)


def _percent(share: float | None) -> str:
    """A share in per cent; a dash where nobody was asked."""
    return "–" if share is None else f"{share:.0%}"
