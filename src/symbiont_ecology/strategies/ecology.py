"""The ecology: a bandit hands out the questions, energy decides who breeds and who dies.

A curriculum says what is asked about, and an allocator who is asked. An organelle takes as many
questions as it can pay for, earns the cell's price for every verified answer and pays for its
compute; a lineage that earns less than it costs ends. What else happens between organelles are
mechanisms, one file each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    HOST,
    Assignment,
    Birth,
    Decision,
    EcologyState,
    Found,
    Organelle,
    Outcome,
    Probation,
    Resize,
)
from symbiont_ecology.economics import ROLLOUT_WITH_LESSON
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.registry import Spec
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Asking, StrategyContext, strategies
from symbiont_ecology.strategies.mechanisms import Mechanism, Room, mechanisms
from symbiont_ecology.types import Cell, Item, OrganelleId

USUAL = ("upheaval", "thrift", "breeding", "refounding")
"""The mechanisms of an ecology, in the order in which they act; others act after them, by name."""


@strategies.register("ecology")
@dataclass(frozen=True)
class Ecology(Asking):
    """Organelles compete for questions; success is energy, and energy is offspring."""

    founders: PositiveInt = 1  # organelles at the start
    capacity: PositiveInt = 16  # most organelles alive
    ranks: PositiveInt = 48  # most units of LoRA rank over all organelles alive
    questions: PositiveFloat = 1  # per cell and generation, on average
    curriculum: Spec = "unmastered"  # which cells they are about
    samples: PositiveInt = 1  # rollouts per question
    learning_rate: PositiveFloat = 0.005  # founders' step size, which is heritable, > 0
    aging: NonNegativeFloat = (
        100.0  # updates from which on the step size falls with their root; 0: never
    )
    mechanisms: dict[str, dict[str, object] | bool] = field(
        default_factory=dict
    )  # knobs by name, or false
    is_mortal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.founders > self.capacity:
            raise ConfigError(
                f"founders: expected at most capacity ({self.capacity}), got {self.founders}"
            )
        _ = self.ways  # a mistake shows before a host is loaded

    @cached_property
    def ways(self) -> tuple[Mechanism, ...]:
        """The mechanisms, in the order in which they act."""
        chosen = dict.fromkeys((*USUAL, *sorted(self.mechanisms)), True) | self.mechanisms
        for name in chosen:
            mechanisms[
                name
            ]  # also one that is switched off is looked up: a typo must not leave it on
        return tuple(
            mechanisms.build({**(knobs if isinstance(knobs, dict) else {}), "kind": name})
            for name, knobs in chosen.items()
            if knobs is not False
        )

    def found(self, scene: StrategyContext) -> Sequence[Decision]:
        """Founders start as the host itself (B = 0) and differ in A."""
        return [Found(self._traits, scene.rank) for _ in range(self.founders)]

    def ask(self, state: EcologyState, scene: StrategyContext, draw: Draw) -> Sequence[Assignment]:
        """Hands out the questions of all cells among those who can pay for them.

        Where nobody lives, the bare host alone spends what is left to be spent.
        """
        if not state.population:
            return _probes(scene, draw)
        demand = self.demand(state, scene, draw)
        allowance = {o.id: self._affordable(o, state, scene) for o in state.population.values()}
        assigned = scene.allocator.assign(demand, state.posteriors, allowance, draw("allocate"))
        taken: dict[tuple[OrganelleId, Cell], list[Item]] = defaultdict(list)
        items = {
            cell: iter(scene.tasks.draw(cell, asked, draw("items", *cell)))
            for cell, asked in Counter(demand).items()
        }
        for organelle_id, cell in assigned:
            taken[organelle_id, cell].append(next(items[cell]))
        practice = [
            Assignment(organelle_id, tuple(own), self.samples)
            for (organelle_id, _), own in taken.items()
        ]
        return practice + [trial for way in self.ways for trial in way.ask(state, scene, draw)]

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: StrategyContext, draw: Draw
    ) -> Sequence[Decision]:
        """Every mechanism decides in turn, on the room that those before it left."""
        decisions: list[Decision] = []
        for way in self.ways:
            decisions += way.tell(state, outcomes, scene, self._room(state, scene, decisions), draw)
        return decisions

    def _room(
        self, state: EcologyState, scene: StrategyContext, decisions: Sequence[Decision]
    ) -> Room:
        """What is left of places and of rank when all is done that is decided on; births at full
        rank."""
        held = {organelle.id: organelle.genome.rank for organelle in state.population.values()}
        coming = list[int]()
        for decision in decisions:
            match decision:
                case Found() | Birth():
                    coming.append(scene.rank)
                case Probation(child, "admit") if child.is_child:
                    coming.append(child.genome.rank)
                case Resize(organelle_id, rank):
                    held[organelle_id] = max(held[organelle_id], rank)
        places, ranks = (
            self.capacity - len(held) - len(coming),
            self.ranks - sum(held.values()) - sum(coming),
        )
        return Room(max(min(places, ranks // scene.rank), 0), max(ranks, 0), self._traits)

    @property
    def _traits(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate, "aging": self.aging}

    def _affordable(self, organelle: Organelle, state: EcologyState, scene: StrategyContext) -> int:
        """Questions that the balance pays for if every rollout is also learned from.

        Who lives may always try one, into debt if need be: so nobody starves on a balance too small
        to work with, and who is in debt can earn its way back while grace lasts.
        """
        balance = state.ledger.balance(organelle.id)
        per_question = self.samples * scene.prices.rollout * ROLLOUT_WITH_LESSON
        return max((balance - scene.prices.ticket) // per_question, 1)


def _probes(scene: StrategyContext, draw: Draw) -> list[Assignment]:
    """A question of every cell to the bare host."""
    generator = draw("probe")
    return [
        Assignment(HOST, scene.tasks.draw(cell, 1, generator), purpose="probe")
        for cell in scene.tasks.cells
    ]
