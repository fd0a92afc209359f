"""The books of a generation: energy, and what is known of everyone, for the weights that acted.

Revenue for verified answers, costs for compute, rent for weights; then posteriors, success averages
and the archive; then the new weights are installed.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from symbiont_ecology.ecology import DriftDetector, EcologyState, Elite, Outcome, SuccessPosterior
from symbiont_ecology.ecology.deaths import quarantine
from symbiont_ecology.ecology.rollout import practice_of
from symbiont_ecology.engine.learn import Update
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Acted, Archived, Event, Settled, VerifierFailed
from symbiont_ecology.types import OrganelleId, cell_name

LOSSES = 16
"""Of an organelle that are kept, the newest."""


def settle(outcomes: Sequence[Outcome], updates: Sequence[Update], turn: Turn) -> list[Event]:
    """Moves the generation's energy, organelle by organelle, and records what was done and paid."""
    state, prices, host = turn.state, turn.prices, turn.host
    events: list[Event] = [_acted(state.generation, outcome) for outcome in outcomes]
    events += verifier_faults(outcomes, turn)
    practice = practice_of(outcomes)
    learned = {update.learned.id: update.learned for update in updates if update.learned.flops}
    probation = _probation_flops(outcomes, turn)
    for organelle_id, organelle in list(state.population.items()):
        revenue, flops = 0, probation[organelle_id]
        for outcome in practice.get(organelle_id, ()):
            price = prices.price(state.success_at(outcome.assignment))
            revenue += prices.revenue(price, outcome.verdicts)
            flops += outcome.cost.flops
        if organelle_id in learned:
            flops += learned[organelle_id].flops
            events.append(learned[organelle_id])
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


def verifier_faults(outcomes: Sequence[Outcome], turn: Turn) -> list[VerifierFailed]:
    """An event for each family whose verifier failed. All its verdicts are counted."""
    failed = dict[str, VerifierFailed]()
    for rollout in (rollout for outcome in outcomes for rollout in outcome.rollouts):
        family, fault = rollout.item.family, rollout.fault
        if rollout.item.logged is not None:
            continue
        turn.faults.note(f"the verifier of {family!r}", fault, is_told=False)
        if fault:
            first = failed.get(family) or VerifierFailed(
                turn.state.generation, rollout.organelle_id, rollout.item.id, fault, count=0
            )
            failed[family] = replace(first, count=first.count + 1)
    return list(failed.values())


def _acted(generation: int, outcome: Outcome) -> Acted:
    assignment, cost = outcome.assignment, outcome.cost
    return Acted(
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
        habitat=assignment.items[0].habitat,
    )


def update_posteriors(
    outcomes: Sequence[Outcome], updates: Sequence[Update], turn: Turn
) -> list[Event]:
    """Updates what is known of everyone who practised, what cells pay, and who holds them."""
    state, events = turn.state, list[Event]()
    practice = [outcome for outcome in outcomes if outcome.assignment.is_practice]
    by_niche: dict[str, list[float]] = defaultdict(list)
    by_taker: dict[tuple[OrganelleId, str], list[float]] = defaultdict(list)
    for outcome in practice:
        if not outcome.verdicts:
            continue
        name = outcome.assignment.niche
        state.success.setdefault(name, state.success_at(outcome.assignment))
        by_niche[name] += outcome.verdicts
        by_taker[outcome.assignment.organelle_id, name] += outcome.verdicts
    # Once in a generation, however its practice is cut: a posterior fades with time.
    for (organelle_id, name), new_verdicts in by_taker.items():
        posteriors = state.posteriors.setdefault(organelle_id, {})
        posterior = posteriors.get(name, SuccessPosterior())
        posteriors[name] = posterior.faded(turn.allocator.fade, new_verdicts)
        genome = state.population[organelle_id].genome
        score = posteriors[name].bound
        elite = Elite(organelle_id, genome.weights, genome.rank, score, state.generation)
        if state.archive.add(name, elite):
            events.append(Archived(state.generation, organelle_id, name, score, genome.weights))
    for organelle_id in sorted({outcome.assignment.organelle_id for outcome in practice}):
        genome = state.population[organelle_id].genome
        state.archive.follow(organelle_id, genome, state.generation)
    for name, new_verdicts in by_niche.items():
        state.success[name] = turn.prices.update_success(state.success[name], new_verdicts)
        detector = state.drift_detectors.get(name, DriftDetector())
        state.drift_detectors[name] = detector.after(new_verdicts)
    _update_effort(state, practice, updates)
    if turn.strategy.watches_losses:
        _watch_losses(state, updates)
    return events


def _watch_losses(state: EcologyState, updates: Sequence[Update]) -> None:
    """Keeps the last losses of everyone alive."""
    for update in updates:
        if update.learned.lessons and not update.is_sick:
            losses = state.losses.get(update.learned.id, ())
            state.losses[update.learned.id] = (*losses, update.learned.loss)[-LOSSES:]
    state.losses = {name: last for name, last in state.losses.items() if name in state.population}


def _update_effort(
    state: EcologyState, practice: Sequence[Outcome], updates: Sequence[Update]
) -> None:
    """What a rollout of each cell took, its lessons included: a moving average over generations."""
    flops, rollouts = Counter[str](), Counter[str]()
    for outcome in practice:
        name = cell_name(outcome.assignment.cell)
        flops[name] += outcome.cost.flops
        rollouts[name] += len(outcome.assignment.items) * max(outcome.assignment.samples, 1)
    for update in updates:
        flops.update(update.flops)
    for name, count in rollouts.items():
        latest = flops[name] / count
        state.effort[name] = 0.5 * (state.effort.get(name, latest) + latest)


def install(updates: Sequence[Update], state: EcologyState) -> list[Event]:
    """Installs what was learned. Whoever met a number that is not finite is quarantined."""
    events: list[Event] = []
    for update in updates:
        organelle = state.population[update.learned.id]
        if update.is_sick:
            reason = "a loss, gradient or weight was not finite"
            events += quarantine(state, organelle.id, reason)
        else:
            genome = replace(organelle.genome, weights=update.learned.weights)
            changed = replace(organelle, genome=genome, optimizer_state=update.optimizer_state)
            state.population[organelle.id] = changed
    return events
