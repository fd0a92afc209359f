"""A first look at a host before a run: what it answers to each cell, asked in several styles.

A run that learns from verdicts learns nothing where nothing is ever right, and nothing where
everything is. What counts is the share of right answers when they are drawn at temperature 1, and
whether one of several draws is right (pass@k, Chen et al. 2021, arXiv:2107.03374).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.engine.act import Question, roll_out
from symbiont_ecology.engine.runtime import Host
from symbiont_ecology.evaluation.evaluator import Progress, no_progress
from symbiont_ecology.rng import Draw
from symbiont_ecology.tasks import Task
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle
from symbiont_ecology.types import Decoding, Item, cell_name
from symbiont_ecology.weights import AdapterWeights

FULL = 0.97
"""Share of right draws from which on there is nothing left to learn."""
ANSWERS_TOGETHER = 48
"""Answers that are written at the same time."""

HostFor = Callable[[bool], Host]
"""The host, for prompts with its chat template (True) or without."""


@dataclass(frozen=True)
class LookPlan:
    """How much is asked: ``per_cell`` questions of every cell in every style, each answered
    greedily and ``samples`` times by draw; no new batch begins that would not end within
    ``seconds``."""

    per_cell: int = 8
    samples: int = 4
    seconds: float = 150.0
    seed: int = 0


@dataclass
class CellLook:
    """What came of the questions of one cell: greedy rollouts, whether a tolerant style accepts
    each of them, and the drawn ones of each question."""

    greedy: list[Rollout] = field(default_factory=list)
    tolerated: list[bool] = field(default_factory=list)
    drawn: list[list[Rollout]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Share of greedy answers that are right."""
        return _share_right(self.greedy)

    @property
    def answers(self) -> int:
        """How many answers there are."""
        return len(self.greedy) + sum(map(len, self.drawn))

    @property
    def tolerant_accuracy(self) -> float:
        """Share of greedy answers that a tolerant style accepts."""
        return sum(self.tolerated) / len(self.tolerated)

    @property
    def drawn_share(self) -> float:
        """Share of drawn answers that are right: what learning from verdicts has to go on."""
        return _share_right([rollout for draws in self.drawn for rollout in draws])

    @property
    def any_share(self) -> float:
        """Share of questions with a right answer among those drawn (pass@k)."""
        return sum(any(draw.is_right for draw in draws) for draws in self.drawn) / len(self.drawn)

    @property
    def shares(self) -> dict[str, float]:
        """All of these under stable names."""
        return {
            "right": self.accuracy,
            "right_drawn": self.drawn_share,
            "right_among_draws": self.any_share,
            "right_if_tolerant": self.tolerant_accuracy,
        }

    @property
    def is_silent(self) -> bool:
        """Whether nothing was right, so there is nothing to learn from."""
        return not self.accuracy and not self.any_share

    @property
    def is_full(self) -> bool:
        """Whether about everything was right, so there is nothing to learn."""
        return self.drawn_share >= FULL


@dataclass(frozen=True)
class StyleLook:
    """What came of all questions in one style. ``seconds`` are those that it took."""

    name: str
    style: PromptStyle
    cells: Mapping[str, CellLook]
    seconds: float

    @property
    def shares(self) -> dict[str, float]:
        """Those of the cells, averaged."""
        by_cell = [cell.shares for cell in self.cells.values()]
        return {name: sum(shares[name] for shares in by_cell) / len(by_cell) for name in by_cell[0]}

    @property
    def silent(self) -> list[str]:
        """Cells in which nothing was right."""
        return [name for name, cell in self.cells.items() if cell.is_silent]

    @property
    def full(self) -> list[str]:
        """Cells in which about everything was right."""
        return [name for name, cell in self.cells.items() if cell.is_full]


@dataclass
class _Gathered:
    """What was found of a style so far, by cell."""

    cells: dict[str, CellLook] = field(default_factory=lambda: defaultdict(CellLook))
    seconds: float = 0.0
    slowest: float = 0.0  # seconds of the batch that took longest

    @property
    def is_silent(self) -> bool:
        """Whether nothing was right."""
        return all(cell.is_silent for cell in self.cells.values())


def look_at(
    tasks: TaskMixture,
    styles: Mapping[str, PromptStyle],
    host_for: HostFor,
    plan: LookPlan,
    progress: Progress = no_progress,
) -> list[StyleLook]:
    """Asks train questions in every style, the same ones in each, some cells at a time.

    The first batch of every style is always asked, whatever it takes. A style in which nothing was
    right in a whole round of all cells is asked no further, if something is right in another.
    """
    start, by_style = time.monotonic(), {name: _Gathered() for name in styles}
    for number, batch in _batches(tasks, plan):
        silent = {name for name, gathered in by_style.items() if gathered.is_silent}
        hopeless = silent if number and len(silent) < len(by_style) else ()
        for name, style in styles.items():
            gathered = by_style[name]
            is_late = time.monotonic() - start + gathered.slowest > plan.seconds
            if (gathered.cells and is_late) or name in hopeless:
                continue
            batch_start = time.monotonic()
            pairs = [
                (styled := _in_style(task, style), styled.item(question, depth))
                for task, depth, question in batch
            ]
            _ask(pairs, style, host_for(style.is_chat), plan, gathered)
            seconds = time.monotonic() - batch_start
            gathered.seconds += seconds
            gathered.slowest = max(gathered.slowest, seconds)
            progress(len(pairs))
    order = [cell_name(cell) for cell in tasks.cells]
    return [
        StyleLook(
            name,
            styles[name],
            {cell: look.cells[cell] for cell in order if cell in look.cells},
            look.seconds,
        )
        for name, look in by_style.items()
    ]


def best_look(looks: Sequence[StyleLook]) -> StyleLook:
    """The style in which most cells have something to learn from; of equals the one in which most
    draws are right."""
    return max(
        looks, key=lambda look: (len(look.cells) - len(look.silent), look.shares["right_drawn"])
    )


def _share_right(rollouts: Sequence[Rollout]) -> float:
    """The share of those with half of the marks or more."""
    return sum(rollout.is_right for rollout in rollouts) / max(len(rollouts), 1)


def _batches(
    tasks: TaskMixture, plan: LookPlan
) -> Iterator[tuple[int, list[tuple[Task, str, str]]]]:
    """Train questions, a round of all cells after the other, and a few cells at a time: so many
    that a batch is filled. What comes early is from cells all over."""
    draw, cells = Draw(plan.seed), []
    for family, depth in tasks.cells:
        task = tasks.families[family]
        items = task.distinct(depth, plan.per_cell, draw("look", family, depth))
        cells.append((task, depth, [item.question for item in items]))
    parts = math.ceil(len(cells) * (plan.samples + 1) / ANSWERS_TOGETHER)
    for number, part in product(range(plan.per_cell), range(parts)):
        batch = [
            (task, depth, questions[number])
            for task, depth, questions in cells[part::parts]
            if number < len(questions)
        ]
        if batch:
            yield number, batch


def _in_style(task: Task, style: PromptStyle) -> Task:
    return task.in_style(style) if isinstance(task, SyntheticTask | DataTask) else task


def _ask(
    pairs: Sequence[tuple[Task, Item]],
    style: PromptStyle,
    host: Host,
    plan: LookPlan,
    gathered: _Gathered,
) -> None:
    """One batch: every item greedily, and by draw."""
    draw, per_item = Draw(plan.seed), plan.samples + 1
    questions = [
        Question(item, HOST, draw("look", item.id, sample) if sample else None)
        for _, item in pairs
        for sample in range(per_item)
    ]
    decoding = Decoding(temperature=1.0, stop=style.stops)
    rollouts, _ = roll_out(questions, host, _nobody, decoding)
    for place, (task, item) in enumerate(pairs):
        greedy, *draws = rollouts[place * per_item : (place + 1) * per_item]
        cell, is_tolerated = gathered.cells[cell_name(item.cell)], greedy.is_right
        if isinstance(task, SyntheticTask):
            is_tolerated = task.is_tolerated(item.question, greedy.text)
        cell.greedy.append(greedy)
        cell.tolerated.append(is_tolerated)
        cell.drawn.append(draws)


def _nobody(organelle_id: str) -> AdapterWeights:
    raise KeyError(organelle_id)  # the bare host is asked, and it needs no slot
