"""A first look at a host before a run: how much it has right in each cell, asked in several styles.

A run that learns from verdicts learns nothing where nothing is ever right, and nothing where
everything is. What counts is the share of right answers when they are drawn at temperature 1, and
whether one of several draws is right (pass@k, Chen et al. 2021, arXiv:2107.03374).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Decoding, OrganelleId, cell_name
from symbiont_ecology.ecology import HOST, Rollout
from symbiont_ecology.evaluate.evaluator import Progress, no_progress
from symbiont_ecology.run.act import Question, roll_out
from symbiont_ecology.run.runtime import Host
from symbiont_ecology.tasks import Task
from symbiont_ecology.tasks.data import DataTask
from symbiont_ecology.tasks.mixture import TaskMixture
from symbiont_ecology.tasks.synthetic.family import SyntheticTask
from symbiont_ecology.tasks.synthetic.styles import PromptStyle

ANSWERS_TOGETHER = 48
"""Answers that are written at the same time."""


@dataclass(frozen=True)
class LookPlan:
    """Size of a look: ``per_cell`` questions of every cell in every style, each answered
    greedily and ``samples`` times by draw; no batch begins after ``seconds`` but the first of each
    style."""

    per_cell: int = 8
    samples: int = 4
    seconds: float = 150.0
    seed: int = 0


@dataclass
class StyleLook:
    """Answers of the bare host in one style: for each question of a cell the greedy one, and behind
    it those that were drawn."""

    style: PromptStyle
    cells: dict[str, list[list[Rollout]]] = field(default_factory=dict)

    def shares(self, *cells: str) -> dict[str, float]:
        """Return the shares of some cells, or of all: greedy answers that are right, drawn ones,
        and questions with a right one among those drawn."""
        answered = [answers for cell in cells or self.cells for answers in self.cells[cell]]
        right = [[one.is_right for one in answers] for answers in answered]
        drawn = [one for _, *draws in right for one in draws]
        return {
            "right": sum(greedy for greedy, *_ in right) / len(right),
            "right_drawn": sum(drawn) / max(len(drawn), 1),
            "right_among_draws": sum(any(draws) for _, *draws in right) / len(right),
        }

    @property
    def silent(self) -> list[str]:
        """Cells in which nothing was right, so there is nothing to learn from."""
        return [cell for cell in self.cells if not any(self.shares(cell).values())]

    @property
    def promise(self) -> tuple[int, float]:
        """Cells with something to learn from, and the share of draws that are right."""
        return len(self.cells) - len(self.silent), self.shares()["right_drawn"]


def look_at(
    tasks: TaskMixture,
    styles: Mapping[str, PromptStyle],
    host_for: Callable[[bool], Host],
    plan: LookPlan,
    progress: Progress = no_progress,
) -> dict[str, StyleLook]:
    """Ask train questions in every style, the same ones in each, some cells at a time.

    ``host_for`` returns the host, for prompts with its chat template (True) or without.
    """
    looks = {name: StyleLook(style) for name, style in styles.items()}
    end = time.monotonic() + plan.seconds
    for batch in _batches(tasks, plan):
        for look in looks.values():
            if look.cells and time.monotonic() > end:
                return looks
            _ask(batch, look, host_for(look.style.is_chat), plan)
            progress(len(batch))
    return looks


def _batches(tasks: TaskMixture, plan: LookPlan) -> Iterator[list[tuple[Task, str, str]]]:
    """Yield train questions, a round of all cells after the other, and a few cells at a time: so
    many that a batch is filled. What comes early is from families all over."""
    draw, asked = Draw(plan.seed), []
    for family, depth in tasks.cells:
        task = tasks.families[family]
        items = task.distinct(depth, plan.per_cell, draw("look", family, depth))
        asked += [(number, depth, task, item.question) for number, item in enumerate(items)]
    asked.sort(key=lambda question: question[:2])
    size = max(ANSWERS_TOGETHER // (plan.samples + 1), 1)
    for start in range(0, len(asked), size):
        yield [(task, depth, text) for _, depth, task, text in asked[start : start + size]]


def _ask(
    batch: Sequence[tuple[Task, str, str]], look: StyleLook, host: Host, plan: LookPlan
) -> None:
    draw, per_item = Draw(plan.seed), plan.samples + 1
    items = [
        (task.in_style(look.style) if isinstance(task, SyntheticTask | DataTask) else task).item(
            question, depth
        )
        for task, depth, question in batch
    ]
    questions = [
        Question(item, HOST, draw("look", item.id, sample) if sample else None)
        for item in items
        for sample in range(per_item)
    ]
    decoding = Decoding(temperature=1.0, stop=look.style.stops)
    nobody = dict[OrganelleId, AdapterWeights]().__getitem__  # the bare host needs no slot
    rollouts, _ = roll_out(questions, host, nobody, decoding)
    for place, item in enumerate(items):
        answers = rollouts[place * per_item : (place + 1) * per_item]
        look.cells.setdefault(cell_name(item.cell), []).append(answers)
