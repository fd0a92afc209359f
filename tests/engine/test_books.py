"""The books of a generation, entry by entry: who pays and earns what, and what is then known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lives import adapter, founded
from symbiont_ecology.adapters import OptimizerState
from symbiont_ecology.base.errors import EcologyWarning, RunError
from symbiont_ecology.base.events import (
    Acted,
    Archived,
    Learned,
    PartFailed,
    Quarantined,
    Retired,
    Settled,
)
from symbiont_ecology.base.fence import Tally
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.transcripts import Transcript
from symbiont_ecology.base.types import Item, LoggedReply, in_turns
from symbiont_ecology.ecology import Assignment, DriftDetector, Outcome, Rollout, SuccessPosterior
from symbiont_ecology.run.learn import Update
from symbiont_ecology.run.runtime import GenerationContext
from symbiont_ecology.run.settle import (
    MIN_CALLS,
    acted,
    install,
    part_faults,
    settle,
    transcribe,
    update_posteriors,
)
from toy import LAYOUT, ToyShape

SUMS, WORDS = "math.add/short", "string.sort/short"
RENT = 2000 * LAYOUT.size(4) // ToyShape().linear_parameters
"""Of an adapter of rank 4, at 2000 mATP for one as large as the host."""


@pytest.fixture
def turn(tmp_path: Path) -> GenerationContext:
    """The third generation of o1, who is at home with sums, and o2, who is with words. A rollout
    of the host takes 100,000 FLOPs, and 250 mATP."""
    state, world = founded(tmp_path, [adapter(1), adapter(2)], ("math.add", "string.sort"))
    state.generation = 3
    state.success = {SUMS: 0.8, WORDS: 0.4}
    for name in ("o1", "o2"):
        state.ledger.charge(name, 299_000)  # each has 1,000 left
    return world.at(state, 0.0, np.inf)


def questions(turn: GenerationContext, cell: str, count: int = 2) -> tuple[Item, ...]:
    family, _, depth = cell.partition("/")
    return turn.tasks.draw((family, depth), count, np.random.default_rng(7))


def answered(
    who: str, items: Sequence[Item], verdicts: Sequence[float], flops: int = 0, **facts: object
) -> Outcome:
    """Every item as often as there are verdicts for it; ``flops`` are those of each rollout."""
    samples = len(verdicts) // len(items)
    cost = Cost(tokens_in=5, tokens_out=2, rows=1, flops=flops)
    rollouts = tuple(
        Rollout(items[place // max(samples, 1)], who, (7, 1), np.zeros(2), "7", one, one, cost)
        for place, one in enumerate(verdicts)
    )
    return Outcome(Assignment(who, tuple(items), samples, **facts), rollouts)  # type: ignore[arg-type]


def update(
    who: str,
    flops: Mapping[str, int],
    weights: str = "new",
    lessons: int = 2,
    loss: float = 0.5,
    *,
    is_sick: bool = False,
) -> Update:
    """What was learned, with FLOPs by cell."""
    learned = Learned(3, who, lessons, 4, sum(flops.values()), loss, 1.0, weights)
    return Update(learned, "memory", flops, is_sick)


def of(kind: type, events: Sequence[object]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_an_answer_pays_by_its_cell_and_all_work_is_charged(turn: GenerationContext) -> None:
    sums, words = questions(turn, SUMS), questions(turn, WORDS, 1)
    outcomes = [
        answered("o1", sums, (1.0, 0.0, 1.0, 0.5), flops=30_000),
        answered("o1", words, (1.0,), flops=50_000),
    ]
    taught = update("o1", {SUMS: 70_000})
    events = settle(outcomes, [taught, update("o2", {})], turn)
    # 1200 mATP for sums, since most are right; 1500 + 2000 × (0.5 − 0.4) for words.
    revenue = int(2.5 * 1200) + 1700
    cost = 250 * (4 * 30_000 + 50_000 + 70_000) // 100_000
    ticket = turn.prices.ticket
    rest, first = 1000 - cost - RENT - ticket + revenue, (3, "o1", SUMS, (sums[0].id, sums[1].id))
    assert events == [
        Acted(*first, (1.0, 0.0, 1.0, 0.5), 2, 20, 8, 120_000, "practice", ""),
        Acted(3, "o1", WORDS, (words[0].id,), (1.0,), 1, 5, 2, 50_000, "practice", ""),
        taught.learned,
        Settled(3, "o1", ticket=ticket, revenue=revenue, cost=cost, rent=RENT, balance=rest),
        Settled(3, "o2", ticket=0, revenue=0, cost=0, rent=RENT, balance=1000 - RENT),
    ]
    ledger = turn.state.ledger
    assert ledger.balances == {"o1": rest, "o2": 1000 - RENT}
    assert ledger.total == 0


def test_who_learns_without_practice_pays_for_it_and_buys_no_ticket(
    turn: GenerationContext,
) -> None:
    (_, settled, _) = settle([], [update("o1", {SUMS: 40_000})], turn)
    assert settled == Settled(3, "o1", 0, 0, 100, RENT, 1000 - 100 - RENT)


def test_what_overflows_the_cap_is_not_revenue(turn: GenerationContext) -> None:
    turn.state.ledger.mint("o1", turn.prices.cap - 1000)
    events = settle([answered("o1", questions(turn, SUMS, 1), (1.0,))], [], turn)
    (first, _) = of(Settled, events)
    paid = RENT + turn.prices.ticket
    assert first == Settled(3, "o1", turn.prices.ticket, paid, 0, RENT, turn.prices.cap)


def test_generations_below_zero_are_counted_and_one_at_zero_ends_the_count(
    turn: GenerationContext,
) -> None:
    state = turn.state
    for name in ("o1", "o2"):
        state.population[name] = replace(state.population[name], overdrawn=2)
    state.ledger.charge("o1", 1001 - RENT)
    state.ledger.charge("o2", 1000 - RENT)
    events = settle([], [], turn)
    assert [one.balance for one in of(Settled, events)] == [-1, 0]
    assert [one.overdrawn for one in state.population.values()] == [3, 0]


@pytest.mark.parametrize("purpose", ["probe", "probation"])
def test_probes_cost_and_earn_nobody_anything(purpose: Any, turn: GenerationContext) -> None:
    outcome = answered("o1", questions(turn, SUMS), (1.0, 1.0), flops=10**9, purpose=purpose)
    (_, first, _) = settle([outcome], [], turn)
    assert first == Settled(3, "o1", 0, 0, 0, RENT, 1000 - RENT)


# Faults of verifiers.


def faulty(outcome: Outcome, *faults: str) -> Outcome:
    pairs = zip(outcome.rollouts, faults, strict=True)
    return replace(outcome, rollouts=tuple(replace(one, fault=fault) for one, fault in pairs))


def test_calls_of_a_verifier_are_counted_with_its_first_fault_but_not_replies_of_a_log(
    turn: GenerationContext,
) -> None:
    sums, words = questions(turn, SUMS), questions(turn, WORDS, 1)
    logged = replace(sums[0], logged=LoggedReply("7", is_accepted=True))
    outcomes = [
        faulty(answered("o1", sums, (0.0, 1.0)), "broke", ""),
        faulty(answered("o2", sums, (0.0, 0.0)), "", "fell"),
        faulty(answered("o2", words, (0.0,)), "raised KeyError"),
        faulty(answered("o1", (logged,), (0.0,)), "none of it"),
    ]
    settle(outcomes, [], turn)
    assert turn.faults.tallies == {
        "the verifier of 'math.add'": Tally(calls=4, failed=2, fault="broke"),
        "the verifier of 'string.sort'": Tally(calls=1, failed=1, fault="raised KeyError"),
    }


# What is known.


def test_posteriors_fade_and_learn_where_verdicts_came(turn: GenerationContext) -> None:
    state, fade = turn.state, turn.allocator.fade
    assert 0 < fade < 1
    outcomes = [
        answered("o1", questions(turn, SUMS), (1.0, 0.0)),
        answered("o1", questions(turn, WORDS), (1.0, 1.0)),
        answered("o2", questions(turn, SUMS), (0.0, 0.0), purpose="probation"),
        answered("o2", questions(turn, SUMS), (0.0, 0.0), purpose="probe"),
    ]
    update_posteriors(outcomes, [], turn)
    assert state.posteriors["o1"] == {
        SUMS: SuccessPosterior(18 * fade + 1, 2 * fade + 1),
        WORDS: SuccessPosterior(2.0, 0.0),
    }
    assert state.posteriors["o2"] == {WORDS: SuccessPosterior(18.0, 2.0)}


def known_after(turn: GenerationContext, cuts: Sequence[Sequence[float]]) -> object:
    """What is known of everyone, and who holds the cells, when o1 practised sums in these cuts."""
    world = replace(turn, state=deepcopy(turn.state))
    update_posteriors([answered("o1", questions(turn, SUMS, 1), cut) for cut in cuts], [], world)
    return world.state.posteriors, world.state.archive


VERDICTS = st.lists(st.sampled_from((0.0, 0.25, 1.0)), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data(), cuts=st.lists(VERDICTS, min_size=1, max_size=5))
def test_what_is_known_depends_neither_on_how_practice_is_cut_nor_on_its_order(
    turn: GenerationContext, data: st.DataObject, cuts: list[list[float]]
) -> None:
    together = [verdict for cut in cuts for verdict in cut]
    known = known_after(turn, [together])
    assert known_after(turn, cuts) == known
    assert known_after(turn, data.draw(st.permutations(cuts))) == known


def test_an_archive_is_offered_once_in_a_generation_what_an_organelle_did_in_a_cell(
    turn: GenerationContext,
) -> None:
    items = questions(turn, SUMS)
    turn.state.archive.elites[SUMS] = replace(turn.state.archive.elites[SUMS], score=0.7)
    outcomes = [answered("o2", items, (1.0,) * 12), answered("o2", items, (0.0,) * 12)]
    assert update_posteriors(outcomes, [], turn) == []
    assert turn.state.archive.elites[SUMS].organelle_id == "o1"


def test_success_and_the_detectors_of_change_follow_all_verdicts_of_a_cell(
    turn: GenerationContext,
) -> None:
    items = questions(turn, SUMS)
    outcomes = [answered("o1", items, (1.0, 0.0)), answered("o2", items, (0.0, 0.0))]
    turn.state.drift_detectors = {SUMS: DriftDetector(((5.0, 6),))}
    update_posteriors(outcomes, [], turn)
    assert turn.state.success == {SUMS: pytest.approx(0.8 + 0.2 * (0.25 - 0.8)), WORDS: 0.4}
    assert turn.state.drift_detectors == {SUMS: DriftDetector(((5.0, 6), (1.0, 4)))}


def test_a_new_user_begins_with_the_success_of_its_cell(turn: GenerationContext) -> None:
    items = [replace(item, user="anna") for item in questions(turn, WORDS)]
    del turn.state.posteriors["o1"]  # nothing is known of a newborn
    (archived,) = update_posteriors([answered("o1", items, (1.0, 1.0))], [], turn)
    anna = pytest.approx(0.4 + 0.2 * (1.0 - 0.4))
    assert turn.state.success == {SUMS: 0.8, WORDS: 0.4, "anna": anna}
    assert isinstance(archived, Archived)
    assert archived.cell == "anna"
    assert turn.state.drift_detectors == {"anna": DriftDetector(((2.0, 2),))}
    assert turn.state.posteriors["o1"] == {"anna": SuccessPosterior(2.0, 0.0)}


def test_what_has_no_verdict_changes_nothing_but_the_effort(turn: GenerationContext) -> None:
    logged = [replace(item, logged=LoggedReply("7")) for item in questions(turn, SUMS)]
    silent = answered("o1", logged, (1.0, 1.0), flops=100)
    update_posteriors([silent, answered("o2", questions(turn, WORDS), (1.0, 1.0))], [], turn)
    assert turn.state.posteriors["o1"] == {SUMS: SuccessPosterior(18.0, 2.0)}
    assert turn.state.success[SUMS] == 0.8
    assert turn.state.success[WORDS] > 0.4
    assert list(turn.state.drift_detectors) == [WORDS]
    assert turn.state.archive.elites[SUMS].score == 0.9
    assert turn.state.effort[SUMS] == 100


def test_the_archive_takes_who_is_surely_better_and_keeps_the_weights_that_acted(
    turn: GenerationContext,
) -> None:
    state = turn.state
    elite = state.archive.elites[SUMS]
    events = update_posteriors([answered("o2", questions(turn, SUMS), (1.0,) * 60)], [], turn)
    weights, score = state.genome("o2").weights, SuccessPosterior(60.0, 0.0).bound
    assert score > elite.score
    assert events == [Archived(3, "o2", SUMS, score, weights)]
    held = state.archive.elites[SUMS]
    assert (held.organelle_id, held.weights, held.rank) == ("o2", weights, 4)
    assert (held.score, held.generation) == (score, 3)


def test_elites_of_who_practised_follow_it_and_those_of_others_stay(
    turn: GenerationContext,
) -> None:
    state = turn.state
    for name in ("o1", "o2"):
        genome = replace(state.population[name].genome, weights=f"grown {name}", rank=5)
        state.population[name] = replace(state.population[name], genome=genome)
    outcomes = [
        answered("o1", questions(turn, WORDS), (0.0, 0.0)),
        answered("o2", questions(turn, WORDS), (1.0, 1.0), purpose="probe"),
    ]
    assert update_posteriors(outcomes, [], turn) == []
    first, second = state.archive.elites[SUMS], state.archive.elites[WORDS]
    assert (first.weights, first.rank, first.generation) == ("grown o1", 5, 3)
    assert (second.organelle_id, second.generation) == ("o2", 0)


def test_the_effort_of_a_cell_is_that_of_a_rollout_with_its_lessons(
    turn: GenerationContext,
) -> None:
    turn.state.effort = {SUMS: 1000.0}
    outcomes = [
        answered("o1", questions(turn, SUMS), (1.0, 0.0, 0.0, 1.0), flops=500),
        answered("o2", questions(turn, SUMS), (1.0, 0.0), flops=800),
        answered("o2", questions(turn, WORDS, 3), (), flops=0),  # asked for no rollouts
    ]
    learned = [update("o1", {SUMS: 900, WORDS: 60}), update("o2", {SUMS: 300, WORDS: 30})]
    update_posteriors(outcomes, learned, turn)
    latest = (4 * 500 + 2 * 800 + 900 + 300) / 6
    assert turn.state.effort == {SUMS: 0.5 * (1000 + latest), WORDS: 30.0}


# What was learned.


def test_what_was_learned_is_installed_and_the_rest_of_an_organelle_stays(
    turn: GenerationContext,
) -> None:
    state = turn.state
    before = dict(state.population)
    assert install([update("o1", {}, weights="wiser")], state) == []
    genome = replace(before["o1"].genome, weights="wiser")
    assert state.population == {
        "o1": replace(before["o1"], genome=genome, optimizer_state="memory"),
        "o2": before["o2"],
    }


def test_who_met_a_number_that_is_not_finite_is_taken_out_and_the_others_learn(
    turn: GenerationContext,
) -> None:
    state = turn.state
    state.population["o1"] = replace(state.population["o1"], optimizer_state="old")
    turn.store.put_optimizer_state(OptimizerState())
    events = install([update("o1", {}, is_sick=True), update("o2", {}, weights="wiser")], state)
    assert events == [
        Quarantined(3, "o1", "a loss, gradient or weight was not finite"),
        Retired(3, "o1", "quarantined", 3, 1000),
    ]
    assert list(state.population) == ["o2"]
    assert state.genome("o2").weights == "wiser"


def test_all_who_met_one_are_told(turn: GenerationContext) -> None:
    turn.store.put_optimizer_state(OptimizerState())
    events = install([update("o1", {}, is_sick=True), update("o2", {}, is_sick=True)], turn.state)
    assert [event.id for event in of(Quarantined, events)] == ["o1", "o2"]


# What is written down.


def test_an_answer_is_recorded_with_its_user(turn: GenerationContext) -> None:
    item = replace(questions(turn, SUMS, 1)[0], user="ada")
    assert acted(3, answered("o1", (item,), (1.0,))).user == "ada"


def test_a_reply_is_transcribed_with_all_that_is_known_of_it(turn: GenerationContext) -> None:
    item = questions(turn, SUMS, 1)[0]
    asked = replace(item, user="ada", prompt=in_turns("1+1", "=2", item.prompt), answer="=9")
    paid, unpaid = (answered("o1", (asked,), (1.0,), purpose=one) for one in ("practice", "probe"))
    turn.state.success["ada"] = 0.5
    unsure = replace(paid.rollouts[0], log_probabilities=np.array([-np.inf, 0.0]))
    paid = replace(paid, rollouts=(*paid.rollouts, unsure))
    price = math.floor(turn.prices.price(0.5))
    first = Transcript(
        *(3, "o1", "practice", SUMS, item.id, item.prompt, "7", 1.0, price, 0.0), *("ada", "=9", 1)
    )
    assert list(transcribe([paid, unpaid], turn)) == [
        first,
        replace(first, confidence=None),
        replace(first, purpose="probe", price=0),
    ]


def test_faults_of_parts_are_told_once_and_a_part_that_does_nothing_but_fail_ends_the_run(
    turn: GenerationContext,
) -> None:
    turn.faults.tallies |= {
        "operator 'mine'": Tally(calls=MIN_CALLS),
        "reward 'mine'": Tally(calls=MIN_CALLS, failed=MIN_CALLS - 1, fault="raised KeyError"),
    }
    with pytest.warns(EcologyWarning, match=r"^reward 'mine' raised KeyError: "):
        told = part_faults(turn)
    facts = "reward 'mine'", MIN_CALLS, MIN_CALLS - 1, "raised KeyError"
    assert told == [PartFailed(3, *facts)]
    with warnings.catch_warnings(action="error"):  # the second time
        assert part_faults(turn) == told
    turn.faults.tallies["reward 'mine'"].failed = MIN_CALLS
    with pytest.raises(RunError, match=f"failed at each of its {MIN_CALLS} calls"):
        part_faults(turn)
