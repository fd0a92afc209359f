"""Births: founders, children, and the energy that they start with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from symbiont_ecology.ecology.decisions import Birth, Decision, Found, Inheritance
from symbiont_ecology.ecology.organelle import RULE, Genome, Organelle
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.economics import Prices
from symbiont_ecology.events import Born
from symbiont_ecology.operators import Parent
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import BlobRef, OrganelleId
from symbiont_ecology.weights import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.weights.blobs import BlobStore

HEARSAY = 0.5
"""How much of a parent's posterior counts for its child."""


@dataclass(frozen=True)
class Materials:
    """What decisions are carried out with: the state, weights and their layout, prices, chance."""

    state: EcologyState
    store: BlobStore
    layout: AdapterLayout
    prices: Prices
    draw: Draw

    def as_parent(self, organelle_id: OrganelleId, inheritance: Inheritance) -> Parent:
        """What an organelle hands down: what it learned, or what it was born with."""
        organelle, store = self.state.population[organelle_id], self.store
        if inheritance == "darwinian":
            return Parent(**vars(store.weights(organelle.inborn)))
        weights = store.weights(organelle.genome.weights)
        optimizer_state = store.optimizer_state(organelle.optimizer_state)
        return Parent(**vars(weights), optimizer_state=optimizer_state)

    def pay_dowry(self, child: OrganelleId, parents: Sequence[OrganelleId], part: int) -> None:
        """Opens a child's account, with so much from each of its parents."""
        self.state.ledger.open(child)
        for parent in parents:
            self.state.ledger.transfer(parent, child, part)

    def enter(
        self,
        organelle_id: OrganelleId,
        genome: Genome,
        operator: str,
        parents: tuple[OrganelleId, ...] = (),
        optimizer_state: BlobRef | None = None,
    ) -> Born:
        """A newborn joins the population; without an optimiser state it gets an empty one."""
        optimizer_state = optimizer_state or self.store.put_optimizer_state(OptimizerState())
        born, weights = self.state.generation, genome.weights
        self.state.population[organelle_id] = Organelle(
            organelle_id, genome, optimizer_state, parents, operator, born=born, inborn=weights
        )
        return Born(born, organelle_id, operator, parents, weights, traits=genome.traits)


def with_rule_traits(
    decisions: Iterable[Decision], generator: np.random.Generator
) -> Iterator[Decision]:
    """Founders get a learning rule, as far as they bring none: evenly spread, from a random one."""
    decisions = list(decisions)
    count = sum(isinstance(decision, Found) for decision in decisions)
    first = generator.random()
    shares = iter((first + place / max(count, 1)) % 1 for place in range(count))
    for decision in decisions:
        if isinstance(decision, Found):
            yield replace(decision, traits={RULE: next(shares), **decision.traits})
        else:
            yield decision


def found(decision: Found, materials: Materials) -> Born:
    """Founds an organelle."""
    state, rank, weights = materials.state, decision.rank, decision.weights
    organelle_id = state.new_id()
    if weights is None:
        # Scaling 1 keeps ΔW = B·A at every rank, so weights mean the same whatever rank holds them.
        generator = materials.draw("found", organelle_id)
        drawn = AdapterWeights.random(materials.layout, rank, 1.0, generator, decision.b_std)
        weights = materials.store.put_weights(drawn)
    state.ledger.open(organelle_id)
    state.ledger.mint(organelle_id, materials.prices.dowry)
    genome = Genome(weights, rank, decision.traits)
    return materials.enter(organelle_id, genome, decision.operator)


def give_birth(decision: Birth, materials: Materials) -> Born:
    """A child of living parents."""
    state, inheritance = materials.state, decision.inheritance
    child, first = state.new_id(), state.population[decision.parents[0]]
    weights = decision.operator(
        [materials.as_parent(parent, inheritance) for parent in decision.parents],
        materials.draw("breed", child),
    )
    part = materials.prices.dowry // len(decision.parents)
    materials.pay_dowry(child, decision.parents, part)
    state.posteriors[child] = {
        cell: posterior.discounted(HEARSAY)
        for cell, posterior in state.posteriors.get(first.id, {}).items()
    }
    genome = Genome(materials.store.put_weights(weights), weights.rank, decision.traits)
    keeps = len(decision.parents) == 1 and genome.rank == first.genome.rank
    optimizer_state = first.optimizer_state if keeps and inheritance == "lamarckian" else None
    return materials.enter(child, genome, decision.name, decision.parents, optimizer_state)
