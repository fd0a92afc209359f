"""The books of a generation: energy, what is known of everyone, and what is written down.

Revenue for verified answers, costs for compute, rent for weights; then posteriors, success averages
and the archive, for the weights that acted; then the new weights are installed. Transcripts and
faults are for people, and nothing here reads them again.
"""

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from symbiont_ecology.base.errors import EcologyWarning, RunError
from symbiont_ecology.base.events import Acted, Archived, Event, PartFailed, Settled
from symbiont_ecology.base.transcripts import Transcript
from symbiont_ecology.base.types import OrganelleId, cell_name, examples_in, last_turn
from symbiont_ecology.ecology import DriftDetector, EcologyState, Elite, Outcome, SuccessPosterior
from symbiont_ecology.ecology.decisions import quarantine
from symbiont_ecology.run.learn import Update
from symbiont_ecology.run.runtime import GenerationContext

MIN_CALLS = 3
"""Calls of a part in one generation that all fail, until the run stops."""


def settle(
    outcomes: Sequence[Outcome], updates: Sequence[Update], context: GenerationContext
) -> list[Event]:
    """Move the generation's energy, organelle by organelle, and record what was done and paid."""
    state, prices, host = context.state, context.prices, context.host
    revenue, flops, tickets = Counter[OrganelleId](), Counter[OrganelleId](), set[OrganelleId]()
    events = list[Event]()
    for outcome in outcomes:
        events.append(acted(state.generation, outcome))
        for rollout in outcome.rollouts:
            if rollout.item.logged is None:
                context.faults.note(f"the verifier of {rollout.item.family!r}", rollout.fault)
        who = outcome.assignment.organelle_id
        if outcome.assignment.is_practice:
            price = prices.price(state.success_at(outcome.assignment))
            revenue[who] += prices.revenue(price, outcome.verdicts)
            flops[who] += outcome.cost.flops
            tickets.add(who)
    learned = {update.learned.id: update.learned for update in updates if update.learned.flops}
    for name, organelle in list(state.population.items()):
        if name in learned:
            flops[name] += learned[name].flops
            events.append(learned[name])
        cost = prices.cost(flops[name], state.mean_rollout_flops)
        parameters, shape = host.layout.size(organelle.genome.rank), host.shape
        rent = prices.rent_for(parameters, shape.layers * shape.linear_parameters)
        ticket = prices.ticket if name in tickets else 0
        state.ledger.charge(name, cost + rent + ticket)
        paid = state.ledger.mint(name, revenue[name], prices.cap)
        balance = state.ledger.balance(name)
        overdrawn = organelle.overdrawn + 1 if balance < 0 else 0
        state.population[name] = replace(organelle, overdrawn=overdrawn)
        books = {"ticket": ticket, "revenue": paid, "cost": cost, "rent": rent, "balance": balance}
        events.append(Settled(state.generation, name, **books))
    return events


def acted(generation: int, outcome: Outcome) -> Acted:
    """Return the event that records an outcome."""
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
        user=assignment.items[0].user,
    )


def update_posteriors(
    outcomes: Sequence[Outcome], updates: Sequence[Update], context: GenerationContext
) -> list[Event]:
    """Update what is known of everyone who practised, what cells pay, and who holds them."""
    state, events = context.state, list[Event]()
    practice = [outcome for outcome in outcomes if outcome.assignment.is_practice]
    by_niche: dict[str, list[float]] = defaultdict(list)
    by_taker: dict[tuple[OrganelleId, str], list[float]] = defaultdict(list)
    for outcome in practice:
        if outcome.verdicts:
            name = outcome.assignment.niche
            state.success.setdefault(name, state.success_at(outcome.assignment))
            by_niche[name] += outcome.verdicts
            by_taker[outcome.assignment.organelle_id, name] += outcome.verdicts
    # Once in a generation, however its practice is cut: a posterior fades with time.
    for (organelle_id, name), new_verdicts in by_taker.items():
        posteriors = state.posteriors.setdefault(organelle_id, {})
        posterior = posteriors.get(name, SuccessPosterior())
        posteriors[name] = posterior.faded(context.allocator.fade, new_verdicts)
        genome, score = state.population[organelle_id].genome, posteriors[name].bound
        elite = Elite(organelle_id, genome.weights, genome.rank, score, state.generation)
        if state.archive.add(name, elite):
            events.append(Archived(state.generation, organelle_id, name, score, genome.weights))
    for organelle_id in sorted({outcome.assignment.organelle_id for outcome in practice}):
        genome = state.population[organelle_id].genome
        state.archive.follow(organelle_id, genome, state.generation)
    for name, new_verdicts in by_niche.items():
        state.success[name] = context.prices.update_success(state.success[name], new_verdicts)
        detector = state.drift_detectors.get(name, DriftDetector())
        state.drift_detectors[name] = detector.after(new_verdicts)
    _update_effort(state, practice, updates)
    return events


def _update_effort(
    state: EcologyState, practice: Sequence[Outcome], updates: Sequence[Update]
) -> None:
    """Keep what a rollout of each cell took, its lessons included: a moving average over
    generations."""
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
    """Install what was learned. Who met a number that is not finite is quarantined."""
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


def transcribe(outcomes: Sequence[Outcome], context: GenerationContext) -> Iterator[Transcript]:
    """Yield a transcript of every reply, with the price that its cell had when it was paid. A
    reference answer that was only read is no reply."""
    for outcome in outcomes:
        assignment, is_paid = outcome.assignment, outcome.assignment.is_practice
        price = context.prices.price(context.state.success_at(assignment)) if is_paid else 0
        for rollout in (r for r in outcome.rollouts if r.has_verdict):
            item, confidence = rollout.item, rollout.confidence
            yield Transcript(
                context.state.generation,
                assignment.organelle_id,
                assignment.purpose,
                cell_name(assignment.cell),
                item.id,
                last_turn(item.prompt),
                rollout.text,
                verdict=rollout.verdict,
                price=math.floor(price),
                confidence=confidence if math.isfinite(confidence) else None,
                user=item.user,
                target=item.answer,
                examples=examples_in(item.prompt),
            )


def part_faults(context: GenerationContext) -> list[PartFailed]:
    """Return the events that name parts, written by others, which failed in a generation. A part
    that fails for the first time in this process is warned of; the log has the rest.

    Raises:
        RunError: one of them does nothing but fail.
    """
    events, warned = [], context.warned
    for part, tally in context.faults.tallies.items():
        if tally.failed == tally.calls >= MIN_CALLS:
            raise RunError(
                f"{part} failed at each of its {tally.calls} calls: it {tally.fault}: mend it, and "
                "go on from the last checkpoint, if there is one"
            )
        if not tally.failed:
            continue
        if part not in warned:
            line = f"{part} {tally.fault}: the event log counts how often"
            warnings.warn(line, EcologyWarning, stacklevel=2)
        warned.add(part)
        facts = part, tally.calls, tally.failed, tally.fault
        events.append(PartFailed(context.state.generation, *facts))
    return events
