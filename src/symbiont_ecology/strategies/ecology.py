"""The ecology: a bandit hands out the questions, energy decides who breeds and who dies.

Every cell asks the same number of questions in each generation. An organelle takes as many as it can pay
for, earns the cell's price for every verified answer and pays for its compute. Who can pay a dowry breeds;
a lineage that earns less than it costs ends; where the population thins out, the archive refounds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from symbiont_ecology.ecology import (
    HOST,
    Birth,
    Decision,
    EcologyState,
    Found,
    Genome,
    Organelle,
    Outcome,
    Trial,
    cell_name,
)
from symbiont_ecology.economics import ROLLOUT_WITH_LESSON
from symbiont_ecology.operators import operators
from symbiont_ecology.registry import Spec
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import Scene, strategies
from symbiont_ecology.types import Cell, Item, OrganelleId


@strategies.register("ecology")
@dataclass(frozen=True)
class Ecology:
    """Organelles compete for questions; success is energy, and energy is offspring."""

    founders: PositiveInt = 8  # organelles at the start, and the size below which the archive refounds
    capacity: PositiveInt = 16  # most organelles alive
    questions: PositiveInt = 4  # per cell and generation
    samples: PositiveInt = 4  # rollouts per question
    probes: NonNegativeInt = 1  # questions per generation to the bare host, for the router
    breed_at: NonNegativeInt = 60_000  # balance from which an organelle breeds, in mATP, dowry included
    learning_rate: PositiveFloat = 0.005  # founders' mean of the heritable step size, > 0
    spread: NonNegativeFloat = 0.3  # std of a child's log step size around its parent's, >= 0
    mutation: Spec = field(default_factory=lambda: {"kind": "gaussian"})  # operator on a child's weights
    is_mortal: ClassVar[bool] = True

    def found(self, scene: Scene) -> Sequence[Decision]:
        """Founders start as the host itself (B = 0) and differ in A."""
        return [Found({"learning_rate": self.learning_rate}, scene.rank) for _ in range(self.founders)]

    def ask(self, state: EcologyState, scene: Scene, draw: Draw) -> Sequence[Trial]:
        """Hands out the questions of all cells among those who can pay for them."""
        demand = [cell for cell in scene.tasks.cells for _ in range(self.questions)]
        allowance = {o.id: self._affordable(o, state, scene) for o in state.population.values()}
        assigned = scene.allocator.assign(demand, state.beliefs, allowance, draw("allocate"))
        taken: dict[tuple[OrganelleId, Cell], list[Item]] = defaultdict(list)
        items = {
            cell: iter(scene.tasks.draw(cell, self.questions, draw("items", *cell)))
            for cell in scene.tasks.cells
        }
        for who, cell in assigned:
            taken[who, cell].append(next(items[cell]))
        practice = [
            Trial(who, tuple(asked), self.samples) for (who, _), asked in sorted(taken.items(), key=_order)
        ]
        return practice + self._probe(scene, draw)

    def tell(
        self, state: EcologyState, outcomes: Sequence[Outcome], scene: Scene, draw: Draw
    ) -> Sequence[Decision]:
        """The rich breed while there is room; a thin population is refounded."""
        decisions: list[Decision] = []
        rich = [o for o in state.population.values() if state.ledger.balance(o.id) >= self.breed_at]
        places = self.capacity - len(state.population)
        for index in draw("breeders").permutation(len(rich))[: max(places, 0)]:
            decisions.append(self._child(rich[index], draw))
        missing = self.founders - len(state.population) - len(decisions)
        return decisions + [self._refounded(state, scene, draw("refound", k)) for k in range(max(missing, 0))]

    def _affordable(self, organelle: Organelle, state: EcologyState, scene: Scene) -> int:
        """Questions that the balance pays for if every rollout is also learned from.

        Who owns anything may always try one more question, into debt if need be: so nobody starves for ever
        on a balance too small to work with.
        """
        balance = state.ledger.balance(organelle.id)
        per_question = self.samples * scene.prices.rollout * ROLLOUT_WITH_LESSON
        return max((balance - scene.prices.ticket) // per_question, int(balance > 0))

    def _probe(self, scene: Scene, draw: Draw) -> list[Trial]:
        """A few questions to the bare host: the router must know when to leave a prompt alone."""
        generator, cells = draw("probe"), scene.tasks.cells
        chosen = [cells[index] for index in generator.integers(len(cells), size=self.probes)]
        return [Trial(HOST, scene.tasks.draw(cell, 1, generator), purpose="probe") for cell in chosen]

    def _child(self, parent: Organelle, draw: Draw) -> Birth:
        step = float(np.exp(self.spread * draw("traits", parent.id).standard_normal()))
        traits = {"learning_rate": parent.genome.traits["learning_rate"] * step}
        spec = self.mutation if isinstance(self.mutation, str) else self.mutation["kind"]
        return Birth((parent.id,), operators.build(self.mutation), str(spec), traits)

    def _refounded(self, state: EcologyState, scene: Scene, generator: np.random.Generator) -> Found:
        """An elite of a cell drawn by its price, or a fresh founder while the archive is empty."""
        elites = sorted(state.archive.elites.items())
        traits = {"learning_rate": self.learning_rate}
        if not elites:
            return Found(traits, scene.rank)
        worth = np.array([scene.prices.price(state.success[name]) for name, _ in elites])
        worth += not worth.any()  # nothing pays: all alike
        _, elite = elites[int(generator.choice(len(elites), p=worth / worth.sum()))]
        return Found(traits, elite.rank, Genome(elite.weights, elite.rank, traits), operator="refounded")


def _order(entry: tuple[tuple[OrganelleId, Cell], list[Item]]) -> tuple[OrganelleId, str]:
    (who, cell), _ = entry
    return who, cell_name(cell)
