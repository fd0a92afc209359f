"""Births: founders, children, and the energy that they start with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from symbiont_ecology.adapters import AdapterWeights
from symbiont_ecology.adapters.deltas import truncated
from symbiont_ecology.adapters.operators import Operator
from symbiont_ecology.adapters.peft_files import read_peft
from symbiont_ecology.base.events import Born, Event
from symbiont_ecology.base.fence import FaultError
from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.changes import Serve
from symbiont_ecology.ecology.habitats import RememberedAnswer
from symbiont_ecology.ecology.organelle import RULE, Genome
from symbiont_ecology.ecology.population import (
    INHERITED_EVIDENCE,
    ApplyContext,
    Decision,
    Inheritance,
)


@dataclass(frozen=True)
class Found(Decision):
    """A new organelle that inherits no weights; the world pays its dowry.

    It has weights of that rank from the store, or those of an ``adapter``, a PEFT folder, whose
    rank it takes. Else it has those of the warm start, if there was one and ``b_std`` is 0. Else
    they are drawn: A is random, B is normal with ``b_std``. It may begin with memories, which it
    learns in ``initial_steps`` before it answers anything. ``parents`` are those whose traits it
    varies.
    """

    traits: dict[str, float]
    rank: int
    weights: BlobRef | None = None
    b_std: float = 0.0
    operator: str = "founder"
    parents: tuple[OrganelleId, ...] = ()
    memories: tuple[RememberedAnswer, ...] = ()
    initial_steps: int = 0
    adapter: str = ""

    def apply(self, context: ApplyContext) -> list[Event]:
        """Founds the organelle.

        Raises:
            AdapterError: the adapter cannot be used with this host.
        """
        state, organelle_id = context.state, context.state.new_id()
        weights, rank = self.first_weights(organelle_id, context)
        state.ledger.open(organelle_id)
        state.ledger.mint(organelle_id, context.prices.dowry)
        genome = Genome(weights, rank, self.traits)
        born = context.enter(organelle_id, genome, self.operator, self.parents)
        born = replace(born, is_endowed=bool(self.parents))
        organelle = state.population[organelle_id].remembering(self.memories)
        state.population[organelle_id] = organelle
        if self.initial_steps:
            context.initial_steps[organelle_id] = self.initial_steps
        return [born]

    def first_weights(
        self, organelle_id: OrganelleId, context: ApplyContext
    ) -> tuple[BlobRef, int]:
        """Return what it begins with, and its rank."""
        if self.adapter:
            adapter = read_peft(self.adapter, context.layout)
            return context.store.put_weights(adapter), adapter.rank
        warm = None if self.b_std else _of_rank(context.state.warm, self.rank, context)
        weights = self.weights or warm
        if weights is None:
            # Scaling 1 keeps ΔW = B·A at every rank, so weights mean the same whatever rank holds
            # them.
            draw, layout = context.draw("found", organelle_id), context.layout
            drawn = AdapterWeights.random(layout, self.rank, 1.0, draw, self.b_std)
            weights = context.store.put_weights(drawn)
        return weights, self.rank


@dataclass(frozen=True)
class Colonise(Decision):
    """A new organelle for habitats that nobody serves well; the world pays its dowry.

    It starts as founders do, or with weights from the store. It learns what these habitats accepted
    in ``initial_steps`` steps before it answers anything: who is born without food is never asked.
    """

    habitats: tuple[str, ...]
    traits: dict[str, float]
    rank: int
    initial_steps: int
    weights: BlobRef | None = None

    def apply(self, context: ApplyContext) -> list[Event]:
        """Founds the organelle, which serves these habitats from now on."""
        founding = Found(
            self.traits,
            self.rank,
            self.weights,
            operator="coloniser",
            initial_steps=self.initial_steps,
        )
        (born,) = founding.apply(context)
        assert isinstance(born, Born)
        return [born, *Serve(dict.fromkeys(self.habitats, born.id)).apply(context)]


@dataclass(frozen=True)
class Awaken(Decision):
    """A dormant organelle lives again, for habitats that want what it remembers; the world pays its
    dowry (a seed bank; Lennon and Jones 2011)."""

    habitats: tuple[str, ...]
    dormant: OrganelleId

    def apply(self, context: ApplyContext) -> list[Event]:
        """It enters the population under a new id, and serves these habitats from now on."""
        state, organelle_id = context.state, context.state.new_id()
        seed = state.dormant.pop(self.dormant)
        state.ledger.open(organelle_id)
        state.ledger.mint(organelle_id, context.prices.dowry)
        born = context.enter(
            organelle_id, seed.genome, "awakened", (seed.id,), seed.optimizer_state
        )
        organelle = replace(state.population[organelle_id], memories=seed.memories)
        state.population[organelle_id] = organelle
        return [born, *Serve(dict.fromkeys(self.habitats, organelle_id)).apply(context)]


@dataclass(frozen=True)
class Birth(Decision):
    """A child of living parents, who pay its dowry in equal parts.

    Its weights are ``operator`` applied to the parents' weights. It inherits, discounted, the
    posteriors of the first parent. What parents learned in their lives is handed down (Lamarckian),
    with the optimizer state of an only parent of equal rank, or not at all (Darwinian).
    """

    parents: tuple[OrganelleId, ...]
    operator: Operator
    name: str
    traits: dict[str, float]
    inheritance: Inheritance = "lamarckian"

    def apply(self, context: ApplyContext) -> list[Event]:
        """The child is born, unless its operator fails."""
        state = context.state
        child, first = state.new_id(), state.population[self.parents[0]]
        parents = [context.as_parent(parent, self.inheritance) for parent in self.parents]
        generator, most = context.draw("breed", child), context.rank
        try:
            weights = context.child_of(parents, self.operator, self.name, generator, most)
        except FaultError as fault:
            return [context.stillborn(child, self.name, self.parents, fault)]
        context.pay_dowry(child, self.parents)
        state.posteriors[child] = {
            cell: posterior.discounted(INHERITED_EVIDENCE)
            for cell, posterior in state.posteriors.get(first.id, {}).items()
        }
        genome = Genome(context.store.put_weights(weights), weights.rank, self.traits)
        keeps = len(parents) == 1 and genome.rank == first.genome.rank
        optimizer_state = (
            first.optimizer_state if keeps and self.inheritance == "lamarckian" else None
        )
        return [context.enter(child, genome, self.name, self.parents, optimizer_state)]


def _of_rank(warm: BlobRef | None, rank: int, context: ApplyContext) -> BlobRef | None:
    """The adapter of a warm start, cut down where it has more rank than the newcomer may have."""
    if warm is None or (adapter := context.store.weights(warm)).rank <= rank:
        return warm
    return context.store.put_weights(truncated(adapter, rank))


def with_rule_traits(
    decisions: Iterable[Decision], generator: np.random.Generator
) -> Iterator[Decision]:
    """Newcomers without parents get a learning rule, as far as they bring none: evenly spread, from
    a random one."""
    decisions = list(decisions)
    count = sum(isinstance(decision, Found | Colonise) for decision in decisions)
    first = generator.random()
    shares = iter((first + place / max(count, 1)) % 1 for place in range(count))
    for decision in decisions:
        if isinstance(decision, Found | Colonise):
            yield replace(decision, traits={RULE: next(shares), **decision.traits})
        else:
            yield decision
