"""The books of a generation: revenue for verified answers, costs for compute, rent for what is held."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import EcologyState, Outcome, cell_name
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.engine.world import World
from symbiont_ecology.events import Acted, Event, Learned, Settled
from symbiont_ecology.types import OrganelleId


def settle(
    state: EcologyState, outcomes: Sequence[Outcome], updates: Sequence[Update], world: World
) -> list[Event]:
    """Moves the generation's energy, organelle by organelle, and records what was done and paid."""
    prices, shape = world.scene.prices, world.host.shape
    events: list[Event] = [_acted(state.generation, outcome) for outcome in outcomes]
    earned: dict[OrganelleId, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.purpose == "practice":
            earned[outcome.trial.who].append(outcome)
    learned = {update.who: update for update in updates}
    exams = _probation(state, outcomes)
    for who, organelle in list(state.population.items()):
        revenue = sum(
            prices.revenue(prices.price(state.success[cell_name(o.trial.cell)]), o.verdicts)
            for o in earned[who]
        )
        flops = sum(outcome.cost.flops for outcome in earned[who]) + exams[who]
        if who in learned and learned[who].lessons:
            flops += learned[who].cost.flops
            events.append(_learned(state.generation, learned[who]))
        cost = prices.cost(flops, state.mean_rollout_flops)
        rent = prices.rent_for(
            world.lora_parameters(organelle.genome.rank), shape.layers * shape.linear_parameters
        )
        ticket = prices.ticket if earned[who] else 0
        state.ledger.charge(who, cost + rent + ticket)
        arrived = state.ledger.mint(who, revenue, prices.cap)
        balance = state.ledger.balance(who)
        overdrawn = organelle.overdrawn + 1 if balance < 0 else 0
        state.population[who] = replace(organelle, overdrawn=overdrawn)
        events.append(Settled(state.generation, who, ticket, arrived, cost, rent, balance))
    return events


def _probation(state: EcologyState, outcomes: Sequence[Outcome]) -> Counter[OrganelleId]:
    """FLOPs of comparisons by who pays: parents for their own answers, and in equal parts for the child's."""
    flops = Counter[OrganelleId]()
    for outcome in outcomes:
        if outcome.trial.purpose == "probation":
            child = state.nursery.get(outcome.trial.who)
            payers = child.parents if child else (outcome.trial.who,)
            for payer in payers:
                flops[payer] += outcome.cost.flops // len(payers)
    return flops


def _acted(generation: int, outcome: Outcome) -> Acted:
    trial, cost = outcome.trial, outcome.cost
    return Acted(
        generation,
        trial.who,
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
        update.who,
        update.lessons,
        update.tokens,
        update.cost.flops,
        update.loss,
        update.gradient_norm,
        update.weights,
    )
