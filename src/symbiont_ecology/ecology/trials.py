"""Trials: challengers go on probation, are judged, and take over or leave."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from symbiont_ecology.bounds import MOST_RANK
from symbiont_ecology.ecology.gate import Challenger, GateDecision
from symbiont_ecology.ecology.organelle import FormerSelf, Genome, Organelle
from symbiont_ecology.ecology.population import INHERITED_EVIDENCE, ApplyContext, Decision
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.events import Born, Event, Gated, Proposed, Resized, Restored, Stillborn
from symbiont_ecology.fence import FaultError
from symbiont_ecology.operators import Operator
from symbiont_ecology.types import OrganelleId
from symbiont_ecology.weights.deltas import inner, truncated


@dataclass(frozen=True)
class ProposeChild(Decision):
    """A child of several parents goes on probation, and is judged by the mechanism ``by``.

    It is born if it is admitted. Its parents put its dowry aside in equal parts; if one of them
    cannot, nothing happens. ``cells`` says where each parent is at home. ``rank`` is the most that
    the child may have: what its operator makes beyond that is cut off.
    """

    cells: Mapping[OrganelleId, tuple[str, ...]]
    operator: Operator
    name: str
    traits: dict[str, float]
    rank: int
    by: str

    def apply(self, context: ApplyContext) -> list[Event]:
        """The child goes on probation, if its parents can pay and its operator makes one."""
        state, part = context.state, context.prices.dowry // len(self.cells)
        if any(state.ledger.balance(parent) < part for parent in self.cells):
            return []  # a birth in the same generation left too little
        child, parents = state.new_id(), list(map(context.as_parent, self.cells))
        generator = context.draw("merge", child)
        try:
            weights = context.child_of(parents, self.operator, self.name, generator, MOST_RANK)
        except FaultError as fault:
            return [context.stillborn(child, self.name, tuple(self.cells), fault)]
        if weights.rank > self.rank:
            weights = truncated(weights, self.rank)
        genome = Genome(context.store.put_weights(weights), weights.rank, self.traits)
        context.pay_dowry(child, tuple(self.cells))
        challenger = Challenger(child, genome, self.name, self.by, "child", cells=self.cells)
        return _on_probation(challenger, state)


@dataclass(frozen=True)
class ProposeVariant(Decision):
    """A variant of an organelle, made by an operator, goes on probation against it.

    The organelle becomes the variant if that is admitted: nobody is born.
    """

    organelle_id: OrganelleId
    cells: tuple[str, ...]
    operator: Operator
    name: str
    by: str

    def apply(self, context: ApplyContext) -> list[Event]:
        """The variant goes on probation."""
        state, parent = context.state, self.organelle_id
        genome, cells = state.genome(parent), {parent: self.cells}
        challenger = Challenger(state.new_id(), genome, self.name, self.by, "variant", cells=cells)
        try:
            variant = _made_anew(challenger, self.operator, context, "merge")
        except FaultError as fault:  # a variant has no dowry
            return [Stillborn(state.generation, challenger.id, self.name, (parent,), str(fault))]
        return _on_probation(variant, state)


@dataclass(frozen=True)
class ProposeFormerSelf(Decision):
    """The former self of an organelle goes on probation against what it is now, in some cells."""

    organelle_id: OrganelleId
    former: FormerSelf
    cells: tuple[str, ...]
    by: str

    def apply(self, context: ApplyContext) -> list[Event]:
        """What the organelle was goes on probation against what it is."""
        state, former, cells = context.state, self.former, {self.organelle_id: self.cells}
        genome = Genome(former.weights, former.rank, state.genome(self.organelle_id).traits)
        challenger = Challenger(
            state.new_id(), genome, "recall", self.by, "former self", cells, former=former
        )
        return _on_probation(challenger, state)


@dataclass(frozen=True)
class Judge(Decision):
    """A challenger with what it has shown since the last look: it goes on, is admitted or rejected.

    An admitted child takes over the cells of its parents, who live on as long as they can; the
    dowry of a rejected one goes back to them. ``operator`` makes a variant anew at every look, from
    what its organelle is then.
    """

    challenger: Challenger
    decision: GateDecision
    operator: Operator | None = None
    reason: str = ""

    def apply(self, context: ApplyContext) -> list[Event]:
        """The probation goes on, or ends."""
        challenger, state = self.challenger, context.state
        decision, reason = self.decision, self.reason
        if challenger.former and decision == "admit" and not _has_former(challenger, state):
            decision, reason = "reject", "its organelle has changed in this generation"
        if self.operator is not None and decision != "reject":
            try:
                challenger = _made_anew(challenger, self.operator, context, "anew")
            except FaultError as fault:
                decision, reason = "reject", f"its operator {fault}"
        if decision == "go on":
            state.challengers[challenger.id] = challenger
            return []
        del state.challengers[challenger.id]
        pairs = vars(challenger.against_the_better)
        gated = Gated(state.generation, challenger.id, decision, **pairs, reason=reason)
        if decision == "reject":
            _reject(challenger, state)
            return [gated]
        match challenger.kind:
            case "child":
                return [gated, _admit_child(challenger, context)]
            case "variant":
                return [gated, _become(challenger, context)]
            case "former self":
                return [gated, _restore(challenger, state)]


def _on_probation(challenger: Challenger, state: EcologyState) -> list[Event]:
    state.challengers[challenger.id] = challenger
    weights, parents = challenger.genome.weights, challenger.parents
    return [Proposed(state.generation, challenger.id, challenger.operator, parents, weights)]


def _made_anew(
    challenger: Challenger, operator: Operator, context: ApplyContext, purpose: str
) -> Challenger:
    """A variant as the operator makes it of what its organelle is now.

    Raises:
        FaultError: the operator fails.
    """
    parents = list(map(context.as_parent, challenger.parents))
    generator, name = context.draw(purpose, challenger.id), challenger.operator
    weights = context.child_of(parents, operator, name, generator, context.rank)
    ref = context.store.put_weights(weights)
    return replace(challenger, genome=Genome(ref, weights.rank, dict(challenger.genome.traits)))


def _reject(challenger: Challenger, state: EcologyState) -> None:
    """A rejected child's dowry goes back to its parents; the part of the dead is lost."""
    if challenger.kind == "child":
        part = state.ledger.balance(challenger.id) // len(challenger.parents)
        for parent in challenger.parents:
            if parent in state.population:
                state.ledger.transfer(challenger.id, parent, part)
        state.ledger.close(challenger.id)
    rival = state.population.get(challenger.parents[0])
    if challenger.former and rival and rival.former == challenger.former:
        state.population[rival.id] = replace(rival, former=None)  # it was no better


def _has_former(challenger: Challenger, state: EcologyState) -> bool:
    """Whether the only parent can still come back: another mechanism may have changed it just now,
    after which it has no former self."""
    (parent,) = challenger.parents
    return state.population[parent].former is not None


def _admit_child(challenger: Challenger, context: ApplyContext) -> Born:
    """The child is born at the home of its parents, with their posteriors there."""
    child, genome, state = challenger.id, challenger.genome, context.state
    inherited = state.posteriors.setdefault(child, {})
    for parent, cells in challenger.cells.items():
        of_parent = state.posteriors.get(parent, {})
        for cell in cells:
            if cell in of_parent:
                inherited[cell] = of_parent[cell]
                of_parent[cell] = of_parent[cell].discounted(INHERITED_EVIDENCE)
        state.archive.pass_on(parent, cells, heir=child, genome=genome)
    return context.enter(child, genome, challenger.operator, challenger.parents)


def _become(challenger: Challenger, context: ApplyContext) -> Resized:
    """The organelle becomes its variant, and stays at home where it was."""
    state, genome, (organelle_id,) = context.state, challenger.genome, challenger.parents
    refs = state.genome(organelle_id).weights, genome.weights
    before, after = (context.store.weights(ref) for ref in refs)
    kept = sum(inner(after, after).values()) / (sum(inner(before, before).values()) or 1.0)
    _change(state.population[organelle_id], genome, state)
    return Resized(state.generation, organelle_id, genome.rank, kept, genome.weights)


def _restore(challenger: Challenger, state: EcologyState) -> Restored:
    """An organelle becomes what it was: weights, optimizer state and posteriors."""
    (organelle_id,) = challenger.parents
    organelle = state.population[organelle_id]
    former = organelle.former  # an upheaval may have voided its posteriors
    assert former is not None, "expected a former self to come back to"
    organelle = replace(organelle, optimizer_state=former.optimizer_state)
    _change(organelle, challenger.genome, state)
    state.posteriors[organelle_id] = {**state.posteriors.get(organelle_id, {}), **former.posteriors}
    return Restored(state.generation, organelle_id, former.weights)


def _change(organelle: Organelle, genome: Genome, state: EcologyState) -> None:
    state.population[organelle.id] = replace(organelle, genome=genome, former=None)
    state.archive.follow(organelle.id, genome, state.generation)
