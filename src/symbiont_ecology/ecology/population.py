"""The population manager: what a strategy decided is carried out, one decision after the other.

A decision is a value, and says by itself what it does to the population: births, deaths, trials,
changes and ascents are files of their own. Births, deaths and trials move energy.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from numpy.random import Generator

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.adapter import Norms
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.adapters.operators import Operator, Parent, Parents, checked_child, operators
from symbiont_ecology.base.events import Born, Event, Stillborn
from symbiont_ecology.base.fence import FaultError, Faults
from symbiont_ecology.base.registry import MAX_RANK
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.organelle import Genome, Organelle
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.state import EcologyState

INHERITED_EVIDENCE = 0.5
"""How much of a parent's posterior counts for its child."""
Inheritance = Literal["lamarckian", "darwinian"]


@dataclass(frozen=True)
class ApplyContext:
    """What decisions are carried out with: the state, weights and their layout, prices, chance.

    ``norms`` are those of the host's base weights, by module. ``rank`` is the most that a slot
    holds, ``faults`` what operators did wrong. ``initial_steps`` are written down as organelles
    are born: the steps in which each is to learn the remembered answers of its habitats, once all
    decisions are carried out.
    """

    state: EcologyState
    store: BlobStore
    layout: AdapterLayout
    prices: Prices
    draw: Draw
    norms: Norms = field(default_factory=dict)
    rank: int = MAX_RANK
    faults: Faults = field(default_factory=Faults)
    initial_steps: dict[OrganelleId, int] = field(default_factory=dict)

    def as_parent(
        self, organelle_id: OrganelleId, inheritance: Inheritance = "lamarckian"
    ) -> Parent:
        """What an organelle hands down: what it learned, or what it was born with."""
        organelle, store = self.state.population[organelle_id], self.store
        if inheritance == "darwinian":
            return Parent(**vars(store.weights(organelle.inborn)))
        weights = store.weights(organelle.genome.weights)
        optimizer_state = store.optimizer_state(organelle.optimizer_state)
        return Parent(**vars(weights), optimizer_state=optimizer_state)

    def child_of(
        self, parents: Parents, operator: Operator, name: str, generator: Generator, most: int
    ) -> AdapterWeights:
        """What an operator makes of its parents: weights for this host, of at most such a rank.

        Raises:
            FaultError: it makes something else, or nothing.
        """
        part, arguments = operators.called(operator, name), (operator, parents, generator, most)
        return self.faults.call(part, checked_child, *arguments, is_told=False)

    def stillborn(
        self, child: OrganelleId, name: str, parents: tuple[OrganelleId, ...], fault: FaultError
    ) -> Stillborn:
        """The parents pay for a child that cannot live, so an operator that fails is not free."""
        self.pay_dowry(child, parents)
        self.state.ledger.close(child)
        price = self.prices.dowry // len(parents)
        return Stillborn(self.state.generation, child, name, parents, str(fault), price)

    def pay_dowry(self, child: OrganelleId, parents: Sequence[OrganelleId]) -> None:
        """Opens a child's account, with equal parts of a dowry from its parents."""
        self.state.ledger.open(child)
        for parent in parents:
            self.state.ledger.transfer(parent, child, self.prices.dowry // len(parents))

    def enter(
        self,
        organelle_id: OrganelleId,
        genome: Genome,
        operator: str,
        parents: tuple[OrganelleId, ...] = (),
        optimizer_state: BlobRef | None = None,
    ) -> Born:
        """A newborn joins the population; without an optimizer state it gets an empty one."""
        optimizer_state = optimizer_state or self.store.put_optimizer_state(OptimizerState())
        born, weights = self.state.generation, genome.weights
        self.state.population[organelle_id] = Organelle(
            organelle_id, genome, optimizer_state, parents, operator, born=born, inborn=weights
        )
        return Born(born, organelle_id, operator, parents, weights, genome.traits, genome.rank)


class Decision(ABC):
    """What a strategy may decide. Frozen: nothing happens until it is carried out."""

    @abstractmethod
    def apply(self, context: ApplyContext) -> list[Event]:
        """Changes the population as decided, and returns the events that record it."""


def apply(decisions: Iterable[Decision], context: ApplyContext) -> list[Event]:
    """Carries out the decisions in their order, and returns the events that record them."""
    return [event for decision in decisions for event in decision.apply(context)]
