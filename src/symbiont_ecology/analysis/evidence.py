"""What the events of a run say about its health, added up: answers by cell, by time and by what was
learned.

Shares carry 95 % Wilson intervals. A question counts once however many rollouts it was given,
because rollouts of one question are not independent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from symbiont_ecology.economics import Prices
from symbiont_ecology.events import (
    Acted,
    BatchShrunk,
    Born,
    Event,
    GenerationEnded,
    Learned,
    Quarantined,
    Retired,
    Settled,
)
from symbiont_ecology.statistics import Interval, wilson

RARE_ROLLOUTS, RARE_QUESTIONS = 0.06, 0.15
"""Upper bounds of the rollouts that are right, and of the questions that any of their rollouts
solves, below which a cell is beyond reach. Two questions a generation, answered once, are enough in
thirty generations."""
SANE = 0.01  # a learning rate that often is not too high


@dataclass(frozen=True)
class Design:
    """What a run is meant to do, as far as its event log cannot say it."""

    prices: Prices = field(default_factory=Prices)
    learns: bool = True  # whether its learning_rule teaches anything; not in the frozen control
    sees_gold: bool = (
        False  # whether it learns from gold answers and so needs no success to begin with
    )
    is_mortal: bool = True  # whether the bankrupt die
    breed_at: int | None = (
        None  # balance from which an organelle breeds, in mATP; None where nobody does
    )
    flip_at: float | None = (
        None  # training FLOPs at which what is right changes; the rest is not judged
    )


@dataclass(frozen=True)
class AnswerCounts:
    """Answers. ``right`` adds up the share of right rollouts of each question."""

    questions: int = 0
    solved: int = 0
    right: float = 0.0
    rollouts: int = 0
    successes: float = 0.0

    @classmethod
    def of(cls, event: Acted) -> AnswerCounts:
        """The answers of one event."""
        starts = range(0, len(event.verdicts), event.samples)
        groups = [event.verdicts[start : start + event.samples] for start in starts]
        solved, right = sum(map(any, groups)), sum(sum(one) / len(one) for one in groups)
        return cls(len(groups), solved, right, len(event.verdicts), sum(event.verdicts))

    def __add__(self, other: AnswerCounts) -> AnswerCounts:
        return AnswerCounts(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    @property
    def share(self) -> Interval:
        """Questions that are right, a question counting by the share of its rollouts."""
        return wilson(round(self.right), self.questions)

    @property
    def most(self) -> float:
        """As many of the rollouts as may be right, at the most."""
        return wilson(round(self.successes), self.rollouts).high

    @property
    def is_beyond_reach(self) -> bool:
        """Whether practically nobody solves these questions."""
        return (
            self.most < RARE_ROLLOUTS and wilson(self.solved, self.questions).high < RARE_QUESTIONS
        )

    @property
    def is_telling(self) -> bool:
        """Whether it is solved, or was asked so often that it is beyond reach."""
        return self.solved > 0 or self.is_beyond_reach

    def solvers(self, what: str) -> str:
        """Who solves them, in words."""
        return f"{'hardly anybody' if self.successes else 'nobody'} solves {what}"

    def __str__(self) -> str:
        asked = f"{self.rollouts} rollouts to {self.questions} questions"
        return f"{self.successes:.0f} right in {asked}, so at most {100 * self.most:.1f} % are (95 % Wilson)"


Cells = defaultdict[str, AnswerCounts]


class Evidence:
    """The events of a run, added up."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.generations = self.last_change = 0
        self.rate: float | None = None
        """The first founder's learning rate; None where nobody has one."""
        self.count: Counter[str] = Counter()
        self.answers: dict[int, Cells] = defaultdict(lambda: defaultdict(AnswerCounts))
        """By the updates behind the weights that answered, then by cell: 0 are the host and
        founders before their first, and who is refounded has those of the elite. A child comes in
        with its first own."""
        self.history: dict[int, Cells] = defaultdict(lambda: defaultdict(AnswerCounts))
        self.losses: dict[int, list[float]] = defaultdict(list)
        self.norms: dict[int, list[float]] = defaultdict(list)
        self.quarantined: list[Quarantined] = []
        self.shrunk: list[BatchShrunk] = []
        self.balances: dict[str, int] = {}
        self._updates: dict[str, int] = {"host": 0}
        """By who answers, and by weights."""

    def add(self, event: Event) -> None:
        """Adds one event."""
        match event:
            case Born():
                self._add_birth(event)
            case Acted():
                self._add_answers(event)
            case Learned():
                self.count["lessons"] += event.lessons
                self.losses[event.generation].append(event.loss)
                self.norms[event.generation].append(event.gradient_norm)
                self._updates[event.id] = self._updates.get(event.id, 0) + 1
                self._updates[event.weights] = self._updates[event.id]
            case Settled():
                self.count.update(
                    earned=event.revenue, cost=event.cost, rent=event.rent, tickets=event.ticket
                )
                self.balances[event.id] = event.balance
            case Retired():
                self.count["bankrupt"] += event.cause == "bankrupt"
                self.balances.pop(event.id, None)
                self.last_change = event.generation
            case Quarantined():
                self.quarantined.append(event)
            case BatchShrunk():
                self.shrunk.append(event)
            case GenerationEnded():
                self.generations = event.generation + 1
                self.count["train_flops"] = event.train_flops

    def _add_birth(self, event: Born) -> None:
        is_first = not (self.generations or self.count["trials"])
        self.count["births" if event.parents else "founders" if is_first else "refounded"] += 1
        if event.parents:
            self.last_change = event.generation
        if event.operator in ("founder", "pioneer"):
            self._updates[event.weights] = 0
        if event.weights in self._updates:
            self._updates[event.id] = self._updates[event.weights]
        self.rate = self.rate or event.traits.get("learning_rate")

    def _add_answers(self, event: Acted) -> None:
        is_practice, updates = event.purpose == "practice", self._updates.get(event.id)
        self.count["trials"] += is_practice
        if updates is not None and event.verdicts:
            self.answers[updates][event.cell] += AnswerCounts.of(event)
        if is_practice and event.verdicts:
            self.history[event.generation][event.cell] += AnswerCounts.of(event)

    @property
    def cells(self) -> Cells:
        """All practice by cell."""
        return merged(self.history.values())

    @property
    def practice(self) -> AnswerCounts:
        """All practice."""
        return sum(self.cells.values(), AnswerCounts())

    @property
    def first(self) -> AnswerCounts:
        """What those answered who had learned nothing yet."""
        return sum(self.answers[0].values(), AnswerCounts())

    @property
    def families(self) -> dict[str, AnswerCounts]:
        """All practice by family."""
        total: dict[str, AnswerCounts] = defaultdict(AnswerCounts)
        for cell, tally in sorted(self.cells.items()):
            total[cell.rpartition("/")[0]] += tally
        return total

    def learned(self, updates: int) -> Cells:
        """What those answered who had at least so many updates."""
        return merged(cells for count, cells in self.answers.items() if count >= updates)

    def third(self, number: int) -> Cells:
        """The practice of the first (0), second or last (2) third of the generations."""
        width = max(self.generations // 3, 1)
        start = self.generations - (3 - number) * width
        return merged(self.history.get(start + one, Cells()) for one in range(width))

    @property
    def deaths(self) -> str:
        """Who died and came, in words."""
        count = self.count
        return f"{count['bankrupt']} bankrupt, {count['refounded']} founded anew, {count['births']} born"

    @property
    def slower(self) -> str:
        """How to learn more slowly, in words."""
        rate = self.rate or 0.0
        return f"lower strategy.learning_rate: try {min(rate / 10, SANE):.2g} instead of {rate:.2g}"

    def measured(self) -> dict[str, Any]:
        """The numbers behind a verdict, as plain values."""
        shares, first = compared(self.answers[0], self.learned(1)), self.first
        before = shares[0] if shares else first.share
        names = ("lessons", "earned", "cost", "rent", "tickets", "founders", "births", "refounded")
        return {
            "rollouts": self.practice.rollouts,
            "questions": self.practice.questions,
            "right_before_learning": asdict(before) if first.questions else None,
            "right_after_learning": asdict(shares[1]) if shares else None,
            "families": {name: asdict(one.share) for name, one in self.families.items()},
            **{name: self.count[name] for name in (*names, "bankrupt", "train_flops")},
        }


def merged(parts: Iterable[Cells]) -> Cells:
    """Tallies of several parts, added up by cell."""
    total: Cells = defaultdict(AnswerCounts)
    for part in parts:
        for cell, tally in part.items():
            total[cell] += tally
    return total


def compared(before: Cells, after: Cells) -> tuple[Interval, Interval] | None:
    """Shares of right answers before and after on the same mix of cells, which is that of after."""
    cells = sorted(before.keys() & after.keys())
    count = sum(after[cell].questions for cell in cells)
    if not count:
        return None
    weights = {cell: after[cell].questions / count for cell in cells}
    share = sum(weights[cell] * before[cell].right / before[cell].questions for cell in cells)
    # As many questions as would tell a share that well if they had come in this mix.
    size = round(1 / sum(weights[cell] ** 2 / before[cell].questions for cell in cells))
    return wilson(round(share * size), size), wilson(
        round(sum(after[cell].right for cell in cells)), count
    )
