"""Trials: a child of several parents goes on probation, is judged, and is born or leaves."""

from collections.abc import Mapping
from dataclasses import dataclass

from symbiont_ecology.adapters.deltas import truncated
from symbiont_ecology.adapters.operators import Operator
from symbiont_ecology.base.events import Born, Event, Gated, Proposed
from symbiont_ecology.base.fence import FaultError
from symbiont_ecology.base.registry import MAX_RANK
from symbiont_ecology.base.types import OrganelleId
from symbiont_ecology.ecology.gate import Challenger, GateDecision
from symbiont_ecology.ecology.organelle import Genome
from symbiont_ecology.ecology.population import INHERITED_EVIDENCE, ApplyContext, Decision
from symbiont_ecology.ecology.state import EcologyState


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
        state, part = context.state, context.prices.dowry // len(self.cells)
        if any(state.ledger.balance(parent) < part for parent in self.cells):
            return []  # a birth in the same generation left too little
        child, parents = state.new_id(), list(map(context.as_parent, self.cells))
        generator = context.draw("merge", child)
        try:
            weights = context.child_of(parents, self.operator, self.name, generator, MAX_RANK)
        except FaultError as fault:
            return [context.stillborn(child, self.name, tuple(self.cells), fault)]
        if weights.rank > self.rank:
            weights = truncated(weights, self.rank)
        genome = Genome(context.store.put_weights(weights), weights.rank, self.traits)
        context.pay_dowry(child, tuple(self.cells))
        state.challengers[child] = Challenger(child, genome, self.name, self.by, self.cells)
        return [Proposed(state.generation, child, self.name, tuple(self.cells), genome.weights)]


@dataclass(frozen=True)
class Judge(Decision):
    """A challenger with what it has shown since the last look: it goes on, is admitted or rejected.

    An admitted child takes over the cells of its parents, who live on as long as they can; the
    dowry of a rejected one goes back to them.
    """

    challenger: Challenger
    decision: GateDecision
    reason: str = ""

    def apply(self, context: ApplyContext) -> list[Event]:
        challenger, state = self.challenger, context.state
        if self.decision == "go on":
            state.challengers[challenger.id] = challenger
            return []
        del state.challengers[challenger.id]
        pairs = vars(challenger.against_the_better)
        gated = Gated(state.generation, challenger.id, self.decision, **pairs, reason=self.reason)
        if self.decision == "reject":
            _refund(challenger, state)
            return [gated]
        return [gated, _admit(challenger, context)]


def _refund(challenger: Challenger, state: EcologyState) -> None:
    """Give the dowry of a rejected child back to its parents; the part of the dead is lost."""
    part = state.ledger.balance(challenger.id) // len(challenger.parents)
    for parent in challenger.parents:
        if parent in state.population:
            state.ledger.transfer(challenger.id, parent, part)
    state.ledger.close(challenger.id)


def _admit(challenger: Challenger, context: ApplyContext) -> Born:
    """Let a child live at the home of its parents, with their posteriors there."""
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
