"""Ways of evolving adapters on the one engine: who lives, who meets what, and what follows. One per
file."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.registry import Registry, Spec
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Cell, Item, OrganelleId
from symbiont_ecology.ecology import Assignment, Decision, EcologyState, Outcome
from symbiont_ecology.ecology.learning import LearningRule
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.routing.allocators import Allocator, Curriculum, curricula
from symbiont_ecology.tasks.mixture import TaskMixture

Want = Literal["deaths", "sketches", "memories", "kinds", "servers"]
World = Literal["cells", "users"]


@dataclass(frozen=True)
class StrategyContext:
    """The view of a strategy in one generation, and the chance that it may use."""

    state: EcologyState
    """The present state, not to be changed."""
    tasks: TaskMixture
    prices: Prices
    allocator: Allocator
    rank: int
    """LoRA rank of the slots, the most that an organelle may have."""
    draw: Draw
    outcomes: Sequence[Outcome] = ()
    """The answers, once they are given."""


class Strategy(ABC):
    """Frozen. It decides; it never touches the host, never evaluates, never changes the state.

    ``wants`` names what the engine does for it. *deaths*: the bankrupt die. *sketches*: answers
    that users remember have sketches, or coordinates (``RememberedAnswer.vector``). *memories*:
    servers remember what users accepted before they changed. *kinds*: it is told the kinds of
    users. *servers*: what a user accepts is learned by its server, whoever said it. ``worlds``
    names where it can work: where it draws questions from *cells*, where *users* ask theirs, or
    both. ``service_fault`` says why a run of it cannot answer people (``symbiont serve``); empty if
    it can. ``compares_rewards`` says that practice serves to see who earns more and nothing else,
    so that a reward may have any scale. ``questions`` are per cell and generation, on average;
    ``samples`` are rollouts per question, and with 0 learning only reads. ``warm`` are gold
    examples per cell that founders have learned (``run.warm``), with a learning rate of its own.
    ``phrases`` may stand in front of every question.
    """

    wants: ClassVar[frozenset[Want]] = frozenset()
    worlds: ClassVar[frozenset[World]] = frozenset({"cells"})
    compares_rewards: ClassVar[bool] = False
    service_fault: ClassVar[str] = ""
    questions: float = 1
    samples: int = 1
    warm: int = 0
    warm_rate: float = 0.001
    phrases: tuple[str, ...] = ()

    @abstractmethod
    def found(self, context: StrategyContext) -> Sequence[Decision]:
        """Return the founding population."""

    @abstractmethod
    def ask(self, context: StrategyContext) -> Sequence[Assignment]:
        """Return who faces which items in this generation."""

    @abstractmethod
    def tell(self, context: StrategyContext) -> Sequence[Decision]:
        """Return what follows from the outcomes, which the state's posteriors and ledger already
        show."""

    def check(self, rank: int, rule: LearningRule) -> None:
        """Check that the strategy fits the host's LoRA rank and the learning rule.

        Raises:
            ConfigError: it does not.
        """
        if self.samples == 0 and not rule.sees_gold:
            raise ConfigError(
                "strategy.samples: 0 asks for no rollouts, and the learning rule learns from "
                "nothing else: set samples, or learning_rule=supervised"
            )
        if 0 < self.samples < rule.least_samples:
            raise ConfigError(
                f"strategy.samples: the learning rule compares answers to one question, so "
                f"expected {rule.least_samples} or more, got {self.samples}: set samples=4, or "
                "learning_rule=policy_gradient"
            )

    def max_rows(self, tasks: TaskMixture) -> int:
        """Return the most rollouts of a generation, without probes, or the examples that are read,
        where no rollouts are made. Estimates go by it (``--dry-run``)."""
        return self.question_count(tasks) * max(self.samples, 1)

    def question_count(self, tasks: TaskMixture) -> int:
        """Return the number of questions of a generation: those of the users, if there are
        any."""
        if tasks.users is not None:
            return tasks.users.config.questions
        return max(round(self.questions * len(tasks.cells)), 1)


@dataclass(frozen=True)
class CurriculumStrategy(Strategy):
    """A strategy that asks about cells by a curriculum."""

    questions: PositiveFloat = 1  # per cell and generation, on average
    curriculum: Spec = "unmastered"  # which cells they are about

    def __post_init__(self) -> None:
        _ = self.built_curriculum  # a mistake shows before a host is loaded

    @cached_property
    def built_curriculum(self) -> Curriculum:
        """The curriculum, which says which cells a generation's questions are about."""
        return curricula.build(self.curriculum)

    def demand(self, context: StrategyContext) -> list[Cell]:
        """Return the cells that this generation's questions are about, one per question."""
        cells, detectors = context.tasks.cells, context.state.drift_detectors
        count, generator = self.question_count(context.tasks), context.draw("demand")
        return self.built_curriculum.demand(cells, detectors, count, generator)

    def items(self, context: StrategyContext) -> tuple[Item, ...]:
        """Return this generation's questions: those of the users, or as the curriculum
        demands."""
        if context.tasks.users:
            return context.tasks.questions(context.state.generation)
        counts, draw = Counter(self.demand(context)), context.draw
        return tuple(
            item
            for cell, count in counts.items()
            for item in context.tasks.draw(cell, count, draw("items", *cell))
        )


@dataclass(frozen=True)
class LearningStrategy(CurriculumStrategy):
    """A strategy whose organelles learn."""

    samples: NonNegativeInt = 1  # rollouts per question; 0 only reads, for supervised learning_rule
    learning_rate: PositiveFloat = 0.005  # founders' learning rate of Adam, > 0
    aging: NonNegativeFloat = 100.0  # updates after which the learning rate falls; 0: never
    warm: NonNegativeInt = 0  # gold examples per cell that founders have learned; 0: none
    warm_rate: PositiveFloat = 0.001  # the learning rate of Adam for them, > 0

    @property
    def traits(self) -> dict[str, float]:
        """Traits of newcomers without parents."""
        return {"learning_rate": self.learning_rate, "aging": self.aging}


def author_of(item: Item, state: EcologyState) -> OrganelleId | None:
    """Return who gave the reply that an item brings, if it is known and alive."""
    author = item.logged.author if item.logged else ""
    return author if author in state.population else None


def assignments(takers: Iterable[tuple[OrganelleId, Item]], samples: int) -> list[Assignment]:
    """Return one assignment for all items of a cell, and user, that an organelle takes."""
    taken: dict[tuple[OrganelleId, Cell, str], list[Item]] = defaultdict(list)
    for organelle_id, item in takers:
        taken[organelle_id, item.cell, item.user].append(item)
    return [Assignment(taker, tuple(items), samples) for (taker, *_), items in taken.items()]


strategies: Registry[Strategy] = Registry("strategy", "symbiont_ecology.ecology.strategies")
