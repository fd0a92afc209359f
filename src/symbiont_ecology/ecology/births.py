"""Births: founders, children, and the energy that they start with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """What a decision needs beside the state: weights, their layout, prices, and chance."""

    store: BlobStore
    layout: AdapterLayout
    prices: Prices
    draw: Draw


def with_rule_traits(
    decisions: Sequence[Decision], generator: np.random.Generator
) -> Iterator[Decision]:
    """Founders get a learning rule, as far as they bring none: evenly spread, from a random one."""
    count = sum(isinstance(decision, Found) for decision in decisions)
    first = generator.random()
    shares = iter((first + place / max(count, 1)) % 1 for place in range(count))
    for decision in decisions:
        if isinstance(decision, Found):
            yield replace(decision, traits={RULE: next(shares), **decision.traits})
        else:
            yield decision


def found(decision: Found, state: EcologyState, materials: Materials) -> Born:
    """Founds an organelle."""
    organelle_id, store = state.new_id(), materials.store
    weights = decision.weights
    if weights is None:
        # Scaling 1 keeps ΔW = B·A at every rank, so weights mean the same whatever rank holds them.
        generator = materials.draw("found", organelle_id)
        weights = store.put_weights(
            AdapterWeights.random(materials.layout, decision.rank, 1.0, generator, decision.b_std)
        )
    state.ledger.open(organelle_id)
    state.ledger.mint(organelle_id, materials.prices.dowry)
    newborn = Organelle(
        id=organelle_id,
        genome=Genome(weights, decision.rank, decision.traits),
        optimizer_state=store.put_optimizer_state(OptimizerState()),
        parents=(),
        operator=decision.operator,
        born=state.generation,
        inborn=weights,
    )
    return enter(newborn, state)


def give_birth(decision: Birth, state: EcologyState, materials: Materials) -> Born:
    """A child of living parents."""
    organelle_id, store = state.new_id(), materials.store
    parents = [state.population[parent] for parent in decision.parents]
    weights = decision.operator(
        [as_parent(parent, store, decision.inheritance) for parent in parents],
        materials.draw("breed", organelle_id),
    )
    ref = store.put_weights(weights)
    pay_dowry(organelle_id, decision.parents, materials.prices.dowry // len(parents), state)
    inherited = state.posteriors.get(parents[0].id, {})
    state.posteriors[organelle_id] = {
        cell: posterior.discounted(HEARSAY) for cell, posterior in inherited.items()
    }
    newborn = Organelle(
        id=organelle_id,
        genome=Genome(ref, weights.rank, decision.traits),
        optimizer_state=_inherited_state(decision, parents, weights.rank, store),
        parents=decision.parents,
        operator=decision.name,
        born=state.generation,
        inborn=ref,
    )
    return enter(newborn, state)


def enter(newborn: Organelle, state: EcologyState) -> Born:
    """A newborn joins the population."""
    state.population[newborn.id] = newborn
    return Born(
        newborn.born,
        id=newborn.id,
        operator=newborn.operator,
        parents=newborn.parents,
        weights=newborn.inborn,
        traits=newborn.genome.traits,
    )


def pay_dowry(
    child: OrganelleId, parents: Sequence[OrganelleId], part: int, state: EcologyState
) -> None:
    """Opens a child's account, with so much from each of its parents."""
    state.ledger.open(child)
    for parent in parents:
        state.ledger.transfer(parent, child, part)


def as_parent(
    organelle: Organelle, store: BlobStore, inheritance: Inheritance = "lamarckian"
) -> Parent:
    """What an organelle hands down: what it learned, or what it was born with."""
    if inheritance == "darwinian":
        return Parent(**vars(store.weights(organelle.inborn)))
    weights = store.weights(organelle.genome.weights)
    return Parent(**vars(weights), optimizer_state=store.optimizer_state(organelle.optimizer_state))


def _inherited_state(
    decision: Birth, parents: Sequence[Organelle], rank: int, store: BlobStore
) -> BlobRef:
    """An only parent's optimiser state, if learning is inherited and the ranks agree."""
    first, *others = parents
    fits = rank == first.genome.rank and decision.inheritance == "lamarckian"
    if fits and not others:
        return first.optimizer_state
    return store.put_optimizer_state(OptimizerState())
