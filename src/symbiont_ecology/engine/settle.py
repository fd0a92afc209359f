"""The books of a generation: revenue for verified answers, costs for compute, rent for weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from symbiont_ecology.ecology import Outcome, cell_name, practice_of
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Acted, Event, Learned, Settled, VerifierFailed
from symbiont_ecology.types import OrganelleId


def settle(outcomes: Sequence[Outcome], updates: Sequence[Update], turn: Turn) -> list[Event]:
    """Moves the generation's energy, organelle by organelle, and records what was done and paid."""
    state, prices, host = turn.state, turn.prices, turn.host
    events = [event for outcome in outcomes for event in _acted(state.generation, outcome)]
    practice = practice_of(outcomes)
    learned = {update.organelle_id: update for update in updates if update.cost.flops}
    probation = _probation_flops(outcomes, turn)
    for organelle_id, organelle in list(state.population.items()):
        revenue, flops = 0, probation[organelle_id]
        for outcome in practice.get(organelle_id, ()):
            price = prices.price(state.success[cell_name(outcome.assignment.cell)])
            revenue += prices.revenue(price, outcome.verdicts)
            flops += outcome.cost.flops
        if organelle_id in learned:
            flops += learned[organelle_id].cost.flops
            events.append(_learned(state.generation, learned[organelle_id]))
        cost = prices.cost(flops, state.mean_rollout_flops)
        parameters, shape = host.layout.size(organelle.genome.rank), host.shape
        rent = prices.rent_for(parameters, shape.layers * shape.linear_parameters)
        ticket = prices.ticket if organelle_id in practice else 0
        state.ledger.charge(organelle_id, cost + rent + ticket)
        paid = state.ledger.mint(organelle_id, revenue, prices.cap)
        balance = state.ledger.balance(organelle_id)
        overdrawn = organelle.overdrawn + 1 if balance < 0 else 0
        state.population[organelle_id] = replace(organelle, overdrawn=overdrawn)
        books = {"ticket": ticket, "revenue": paid, "cost": cost, "rent": rent, "balance": balance}
        events.append(Settled(state.generation, organelle_id, **books))
    return events


def _probation_flops(outcomes: Sequence[Outcome], turn: Turn) -> Counter[OrganelleId]:
    """FLOPs of comparisons by who pays: parents, for their own answers and, in equal parts, for
    those of their challenger."""
    flops = Counter[OrganelleId]()
    for outcome in outcomes:
        if outcome.assignment.purpose == "probation":
            challenger = turn.state.challengers.get(outcome.assignment.organelle_id)
            payers = challenger.parents if challenger else (outcome.assignment.organelle_id,)
            for payer in payers:
                flops[payer] += outcome.cost.flops // len(payers)
    return flops


def _acted(generation: int, outcome: Outcome) -> Iterator[Event]:
    assignment, cost = outcome.assignment, outcome.cost
    yield Acted(
        generation,
        id=assignment.organelle_id,
        cell=cell_name(assignment.cell),
        items=tuple(item.id for item in assignment.items),
        verdicts=outcome.verdicts,
        samples=assignment.samples,
        tokens_in=cost.tokens_in,
        tokens_out=cost.tokens_out,
        flops=cost.flops,
        purpose=assignment.purpose,
    )
    for rollout in outcome.rollouts:
        if rollout.fault:
            yield VerifierFailed(generation, rollout.organelle_id, rollout.item.id, rollout.fault)


def _learned(generation: int, update: Update) -> Learned:
    return Learned(
        generation,
        id=update.organelle_id,
        lessons=update.lessons,
        tokens=update.tokens,
        flops=update.cost.flops,
        loss=update.loss,
        gradient_norm=update.gradient_norm,
        weights=update.weights,
    )
