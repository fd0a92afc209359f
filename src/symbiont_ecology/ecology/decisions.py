"""Decisions of a strategy, and how they change the population: births, deaths, ranks, users.

A decision is a value. It says by itself what it does to the state, and returns the events that
record it. Births and deaths move energy. Every death goes through ``retire``; its
``Retired`` event names the cause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from symbiont_ecology.adapters import AdapterLayout, AdapterWeights, OptimizerState
from symbiont_ecology.adapters.adapter import Norms
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.adapters.deltas import grown, grown_optimizer_state, shares, truncated
from symbiont_ecology.adapters.operators import Operator, checked_child, operators
from symbiont_ecology.base import events
from symbiont_ecology.base.events import Event, Stillborn
from symbiont_ecology.base.fence import FaultError, Faults
from symbiont_ecology.base.registry import MAX_RANK
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import BlobRef, OrganelleId
from symbiont_ecology.ecology.gate import Gate, Trial
from symbiont_ecology.ecology.organelle import Genome, Organelle
from symbiont_ecology.ecology.prices import Prices
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.success import SuccessPosterior
from symbiont_ecology.ecology.users import RememberedAnswer, User

INHERITED_EVIDENCE = 0.5
"""Part of a parent's posterior that counts for its child."""
FALLEN = SuccessPosterior(0.0, 4.0)
"""The posterior of everyone alive in cells where the world changed: they were just seen to fail."""
MAX_DORMANT = 32
"""Dormant organelles that are kept; the oldest go first."""
Inheritance = Literal["lamarckian", "darwinian"]


@dataclass(frozen=True)
class ApplyContext:
    """The means by which decisions are applied: the state, weights and their layout, prices,
    chance.

    ``norms`` are those of the host's base weights, by module. ``rank`` is the most that a slot
    holds, ``faults`` what operators did wrong. ``hold_trial`` lets a merged child prove itself.
    """

    state: EcologyState
    store: BlobStore
    layout: AdapterLayout
    prices: Prices
    draw: Draw
    norms: Norms = field(default_factory=dict)
    rank: int = MAX_RANK
    faults: Faults = field(default_factory=Faults)
    hold_trial: Callable[[OrganelleId, Merge], Trial] = lambda child, merge: Trial("admit")

    def open_account(self, organelle_id: OrganelleId, parents: Sequence[OrganelleId] = ()) -> None:
        """Open a newcomer's account with a dowry: of its parents in equal parts, or of the
        world."""
        ledger = self.state.ledger
        ledger.open(organelle_id)
        for parent in parents:
            ledger.transfer(parent, organelle_id, self.prices.dowry // len(parents))
        if not parents:
            ledger.mint(organelle_id, self.prices.dowry)

    def conceive(
        self,
        child: OrganelleId,
        parents: Sequence[OrganelleId],
        operator: Operator,
        name: str,
        generator: np.random.Generator,
        max_rank: int,
        inheritance: Inheritance = "lamarckian",
    ) -> AdapterWeights | Stillborn:
        """Return the weights that an operator makes of parents, who pay the dowry, also for a child
        that cannot live: so an operator that fails is not free."""
        self.open_account(child, parents)
        given = [self._handed_down(parent, inheritance) for parent in parents]
        part, arguments = operators.called(operator, name), (operator, given, generator, max_rank)
        try:
            return self.faults.call(part, checked_child, *arguments)
        except FaultError as fault:
            self.state.ledger.close(child)
            price = self.prices.dowry // len(parents)
            lost = self.state.generation, child, name, tuple(parents), str(fault), price
            return Stillborn(*lost)

    def _handed_down(self, organelle_id: OrganelleId, inheritance: Inheritance) -> AdapterWeights:
        """Return what an organelle hands down: what it learned, or what it was born with."""
        organelle = self.state.population[organelle_id]
        is_inborn = inheritance == "darwinian"
        return self.store.weights(organelle.inborn if is_inborn else organelle.genome.weights)

    def enter(
        self,
        organelle_id: OrganelleId,
        genome: Genome,
        operator: str,
        parents: tuple[OrganelleId, ...] = (),
        *,
        optimizer_state: BlobRef | None = None,
        memories: Sequence[RememberedAnswer] = (),
    ) -> events.Born:
        """Add a newborn to the population; without an optimizer state it gets an empty one."""
        optimizer_state = optimizer_state or self.store.put_optimizer_state(OptimizerState())
        now, weights, rank = self.state.generation, genome.weights, genome.rank
        self.state.population[organelle_id] = Organelle(
            organelle_id, genome, optimizer_state, parents, operator, born=now, inborn=weights
        ).remembering(memories)
        return events.Born(now, organelle_id, operator, parents, weights, genome.traits, rank)


class Decision(ABC):
    """A decision of a strategy. Frozen: nothing happens until it is applied."""

    @abstractmethod
    def apply(self, context: ApplyContext) -> list[Event]:
        """Change the population as decided, and return the events that record it."""


# Births.


@dataclass(frozen=True)
class Found(Decision):
    """A new organelle without parents' weights to mix; the world pays its dowry.

    It has weights of that rank from the store, if some are named. Else it has those of the warm
    start, if there was one and ``b_std`` is 0. Else they are drawn: A is random, B is normal with
    ``b_std``. It may begin with memories, and serve ``users``: it learns these memories and what
    these users accepted in ``initial_steps`` before it answers anything. ``parents`` are those
    whose traits it varies. ``phrase`` stands in front of every question that it is asked.
    """

    traits: dict[str, float]
    rank: int
    weights: BlobRef | None = None
    b_std: float = 0.0
    operator: str = "founder"
    parents: tuple[OrganelleId, ...] = ()
    memories: tuple[RememberedAnswer, ...] = ()
    users: tuple[str, ...] = ()
    initial_steps: int = 0
    phrase: str = ""

    def apply(self, context: ApplyContext) -> list[Event]:
        organelle_id = context.state.new_id()
        genome = Genome(*self.first_weights(organelle_id, context), self.traits)
        context.open_account(organelle_id)
        born = context.enter(
            organelle_id, genome, self.operator, self.parents, memories=self.memories
        )
        served = Serve(dict.fromkeys(self.users, organelle_id)).apply(context)
        return [replace(born, is_endowed=bool(self.parents)), *served]

    def first_weights(
        self, organelle_id: OrganelleId, context: ApplyContext
    ) -> tuple[BlobRef, int]:
        """Return what it begins with, and its rank."""
        first, store = self._first(context, organelle_id), context.store
        if self.phrase:
            first = store.put_weights(replace(store.weights(first), phrase=self.phrase))
        return first, self.rank

    def _first(self, context: ApplyContext, organelle_id: OrganelleId) -> BlobRef:
        store, warm = context.store, None if self.b_std else context.state.warm
        if self.weights is not None:
            return self.weights
        if warm is not None:
            learned = store.weights(warm)
            is_cut = learned.rank > self.rank
            return store.put_weights(truncated(learned, self.rank)) if is_cut else warm
        # Scaling 1 keeps ΔW = B·A at every rank, so weights mean the same whatever rank holds them.
        draw, layout = context.draw("found", organelle_id), context.layout
        drawn = AdapterWeights.random(layout, self.rank, 1.0, draw, self.b_std)
        return store.put_weights(drawn)


@dataclass(frozen=True)
class Awaken(Decision):
    """A dormant organelle lives again, under a new id, for users that want what it remembers;
    the world pays its dowry (a seed bank; Lennon and Jones 2011)."""

    users: tuple[str, ...]
    dormant: OrganelleId

    def apply(self, context: ApplyContext) -> list[Event]:
        state, organelle_id = context.state, context.state.new_id()
        seed = state.dormant.pop(self.dormant)
        context.open_account(organelle_id)
        born = context.enter(
            organelle_id,
            seed.genome,
            "awakened",
            (seed.id,),
            optimizer_state=seed.optimizer_state,
            memories=seed.memories,
        )
        return [born, *Serve(dict.fromkeys(self.users, organelle_id)).apply(context)]


@dataclass(frozen=True)
class Birth(Decision):
    """A child of living parents, who pay its dowry in equal parts, unless its operator fails.

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
        state, child = context.state, context.state.new_id()
        first = state.population[self.parents[0]]
        generator, rank = context.draw("breed", child), context.rank
        weights = context.conceive(
            child, self.parents, self.operator, self.name, generator, rank, self.inheritance
        )
        if isinstance(weights, Stillborn):
            return [weights]
        state.posteriors[child] = {
            cell: posterior.discounted(INHERITED_EVIDENCE)
            for cell, posterior in state.posteriors.get(first.id, {}).items()
        }
        genome = Genome(context.store.put_weights(weights), weights.rank, self.traits)
        is_alike = len(self.parents) == 1 and genome.rank == first.genome.rank
        keeps = is_alike and self.inheritance == "lamarckian"
        moments = first.optimizer_state if keeps else None
        return [context.enter(child, genome, self.name, self.parents, optimizer_state=moments)]


@dataclass(frozen=True)
class Merge(Decision):
    """A child of several parents, who pay its dowry in equal parts. It is born if a trial proves
    that it is better than each of them, else the dowry goes back.

    ``cells`` says where each parent is at home: in a round of the trial each of these cells asks
    ``questions``, and an admitted child is asked there next. Its parents live on as long as they
    can. What the operator makes beyond the rank of a slot is cut off.
    """

    cells: Mapping[OrganelleId, tuple[str, ...]]
    operator: Operator
    name: str
    traits: dict[str, float]
    gate: Gate
    questions: int

    def apply(self, context: ApplyContext) -> list[Event]:
        state, parents, child = context.state, tuple(self.cells), context.state.new_id()
        generator = context.draw("merge", child)
        weights = context.conceive(child, parents, self.operator, self.name, generator, MAX_RANK)
        if isinstance(weights, Stillborn):
            return [weights]
        if weights.rank > context.rank:
            weights = truncated(weights, context.rank)
        genome = Genome(context.store.put_weights(weights), weights.rank, self.traits)
        proposed = events.Proposed(state.generation, child, self.name, parents, genome.weights)
        born = context.enter(child, genome, self.name, parents)
        trial = context.hold_trial(child, self)
        gated = events.Gated(state.generation, child, trial.decision, **vars(trial.counts))
        if trial.decision == "admit":
            # It is asked there next, by what is known of its parents.
            inherited = state.posteriors.setdefault(child, {})
            for parent, cells in self.cells.items():
                of_parent = state.posteriors[parent]
                for cell in cells:
                    inherited[cell] = of_parent[cell]
                    of_parent[cell] = of_parent[cell].discounted(INHERITED_EVIDENCE)
            return [proposed, *trial.events, gated, born]
        del state.population[child]
        part = state.ledger.balance(child) // len(parents)
        for parent in parents:
            state.ledger.transfer(child, parent, part)
        state.ledger.close(child)
        return [proposed, *trial.events, gated]


# Deaths.


@dataclass(frozen=True)
class Retire(Decision):
    """An organelle leaves; what it owns or owes goes to the world."""

    organelle_id: OrganelleId
    cause: str

    def apply(self, context: ApplyContext) -> list[Event]:
        return [retire(self.organelle_id, self.cause, context.state)]


def retire_the_bankrupt(state: EcologyState, prices: Prices) -> list[Event]:
    """Retire everyone who has been below zero for longer than the grace period."""
    organelles = state.population.values()
    bankrupt = [organelle.id for organelle in organelles if organelle.overdrawn > prices.grace]
    return [retire(organelle_id, "bankrupt", state) for organelle_id in bankrupt]


def quarantine(state: EcologyState, organelle_id: OrganelleId, reason: str) -> list[Event]:
    """Retire an organelle whose numbers are no longer finite; the others go on."""
    retired = retire(organelle_id, "quarantined", state)
    return [events.Quarantined(state.generation, organelle_id, reason), retired]


def retire(organelle_id: OrganelleId, cause: str, state: EcologyState) -> events.Retired:
    """Remove an organelle and close its account. A bankrupt with memories becomes dormant."""
    organelle = state.population.pop(organelle_id)
    if cause == "bankrupt" and organelle.memories:
        state.dormant[organelle_id] = organelle
        for oldest in list(state.dormant)[:-MAX_DORMANT]:
            del state.dormant[oldest]
    state.posteriors.pop(organelle_id, None)
    balance = state.ledger.close(organelle_id)
    if not state.population:  # whoever starts anew has not fallen from what was usual before
        state.drift_detectors.clear()
    age = state.generation - organelle.born
    return events.Retired(state.generation, organelle_id, cause, age, balance)


# Changes of the living: their rank, their users, their posteriors.


@dataclass(frozen=True)
class Resize(Decision):
    """An organelle grows or shrinks by rank, if the spectrum of its ΔW says so.

    ``share`` is what the weakest direction must carry at least to grow, or may carry at most to
    shrink, in units of an even share.
    """

    organelle_id: OrganelleId
    rank: int
    share: float

    def apply(self, context: ApplyContext) -> list[Event]:
        state, store = context.state, context.store
        organelle = state.population[self.organelle_id]
        weights = store.weights(organelle.genome.weights)
        optimizer_state = store.optimizer_state(organelle.optimizer_state)
        spectrum = shares(weights)
        weakest, kept = spectrum[-1] * len(spectrum), 1.0
        if self.rank > weights.rank:
            if weakest < self.share:
                return []
            resized = grown(weights, self.rank, context.draw("grow", organelle.id))
            optimizer_state = grown_optimizer_state(optimizer_state, weights, self.rank)
        else:
            if weakest > self.share or not spectrum.any():  # an adapter that never learned is 0
                return []
            kept = float(spectrum[: self.rank].sum())
            resized = truncated(weights, self.rank)
            # Its moments belong to directions that are gone, its age is its own.
            optimizer_state = OptimizerState(step=optimizer_state.step, notes=optimizer_state.notes)
        genome = replace(organelle.genome, weights=store.put_weights(resized), rank=self.rank)
        ref = store.put_optimizer_state(optimizer_state)
        changed = replace(organelle, genome=genome, optimizer_state=ref)
        state.population[organelle.id] = changed
        return [events.Resized(state.generation, organelle.id, self.rank, kept, genome.weights)]


@dataclass(frozen=True)
class Serve(Decision):
    """Users are served by other organelles, who get their next questions and learn what they
    accepted. ``servers`` has each user that changes."""

    servers: Mapping[str, OrganelleId]

    def apply(self, context: ApplyContext) -> list[Event]:
        state = context.state
        for name, organelle_id in self.servers.items():
            state.users[name] = replace(state.users.get(name, User()), chosen=organelle_id)
        return [events.Served(state.generation, dict(self.servers))] if self.servers else []


@dataclass(frozen=True)
class DriftResponse(Decision):
    """The world is taken to have changed in some cells: posteriors and claims there are void, and
    everyone is taken to fail."""

    cells: tuple[str, ...]

    def apply(self, context: ApplyContext) -> list[Event]:
        state, void = context.state, dict.fromkeys(self.cells, FALLEN)
        for name in self.cells:
            state.archive.elites.pop(name, None)
            state.drift_detectors.pop(name, None)  # what was usual there is so no more
        for organelle in state.population.values():
            state.posteriors.setdefault(organelle.id, {}).update(void)
        return [events.Upheaved(state.generation, self.cells)]
