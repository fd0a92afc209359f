"""The books of a generation: revenue for verified answers, costs for compute, rent for what is
held."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.events import Acted, Event, Learned, Settled
from symbiont_ecology.types import OrganelleId


def settle(
    state: EcologyState, outcomes: Sequence[Outcome], updates: Sequence[Update], world: Runtime
) -> list[Event]:
    """Moves the generation's energy, organelle by organelle, and records what was done and paid."""
    prices, shape = world.scene.prices, world.host.shape
    events: list[Event] = [_acted(state.generation, outcome) for outcome in outcomes]
    earned: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            earned[outcome.trial.organelle_id].append(outcome)
    learned = {update.organelle_id: update for update in updates}
    exams = _probation(state, outcomes)
    for organelle_id, organelle in list(state.population.items()):
        revenue = sum(
            prices.revenue(prices.price(state.success[cell_name(o.trial.cell)]), o.verdicts)
            for o in earned[organelle_id]
        )
        flops = sum(outcome.cost.flops for outcome in earned[organelle_id]) + exams[organelle_id]
        if organelle_id in learned and learned[organelle_id].lessons:
            flops += learned[organelle_id].cost.flops
            events.append(_learned(state.generation, learned[organelle_id]))
        cost = prices.cost(flops, state.mean_rollout_flops)
        rent = prices.rent_for(
            world.lora_parameters(organelle.genome.rank), shape.layers * shape.linear_parameters
        )
        ticket = prices.ticket if earned[organelle_id] else 0
        state.ledger.charge(organelle_id, cost + rent + ticket)
        arrived = state.ledger.mint(organelle_id, revenue, prices.cap)
        balance = state.ledger.balance(organelle_id)
        overdrawn = organelle.overdrawn + 1 if balance < 0 else 0
        state.population[organelle_id] = replace(organelle, overdrawn=overdrawn)
        events.append(Settled(state.generation, organelle_id, ticket, arrived, cost, rent, balance))
    return events


def _probation(state: EcologyState, outcomes: Sequence[Outcome]) -> Counter[OrganelleId]:
    """FLOPs of comparisons by who pays: parents for their own answers, and in equal parts for the
    child's."""
    flops = Counter[OrganelleId]()
    for outcome in outcomes:
        if outcome.trial.purpose == "probation":
            child = state.challengers.get(outcome.trial.organelle_id)
            payers = child.parents if child else (outcome.trial.organelle_id,)
            for payer in payers:
                flops[payer] += outcome.cost.flops // len(payers)
    return flops


def _acted(generation: int, outcome: Outcome) -> Acted:
    trial, cost = outcome.trial, outcome.cost
    return Acted(
        generation,
        trial.organelle_id,
        cell_name(trial.cell),
        tuple(item.id for item in trial.items),
        outcome.verdicts,
        trial.samples,
        cost.tokens_in,
        cost.tokens_out,
        cost.flops,
        trial.purpose,
    )


def _learned(generation: int, update: Update) -> Learned:
    return Learned(
        generation,
        update.organelle_id,
        update.lessons,
        update.tokens,
        update.cost.flops,
        update.loss,
        update.gradient_norm,
        update.weights,
    )
