"""The learning step, entry by entry: who is taught what, at which price, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from classroom import Class, Golden, answer, by_name, school
from symbiont_ecology.adapters import OptimizerState
from symbiont_ecology.base.events import Learned
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Lesson, cell_name
from symbiont_ecology.ecology import Assignment, Outcome
from symbiont_ecology.ecology.learning import Experience
from symbiont_ecology.run.learn import learn
from toy import LAYOUT


@pytest.fixture
def room(tmp_path: Path) -> Class:
    return school(tmp_path)


# A wave.


def test_everyone_learns_its_own_lessons_in_a_slot_of_its_own(room: Class) -> None:
    outcomes = [room.outcome("o3", (1.0, 0.0)), room.outcome("o1", (1.0,), cell=1)]
    outcomes.append(room.outcome("o2", (0.5,)))
    before, updates = room.weights, by_name(learn(outcomes, room.turn))
    first, second = room.host.batches

    def lessons(outcome: Outcome, slot: int) -> tuple[Lesson, ...]:
        told = [(one.item.prompt, one.token_ids, 2 * one.verdict - 1) for one in outcome.rollouts]
        return tuple(Lesson(prompt, ids, slot, weight) for prompt, ids, weight in told)

    assert first.lessons == lessons(outcomes[1], 0) + lessons(outcomes[2], 1)
    assert second.lessons == lessons(outcomes[0], 0)
    assert list(updates) == ["o1", "o2", "o3"]
    for batch, names, (weights, states) in zip(
        (first, second), (("o1", "o2"), ("o3",)), room.host.given, strict=True
    ):
        assert weights == {slot: before[name] for slot, name in enumerate(names)}
        assert [state.step for state in states.values()] == [3] * len(names)
        assert batch.learning_rates == dict.fromkeys(range(len(names)), 0.1)
        assert batch.dropout == dict.fromkeys(range(len(names)), 0.0)
        seeds = [room.turn.draw.key("dropout", name) for name in names]
        assert batch.dropout_seeds == dict(enumerate(seeds))


def test_what_was_learned_is_kept_and_told_and_not_yet_installed(room: Class) -> None:
    outcomes = [room.outcome("o1", (1.0, 0.0)), room.outcome("o2", (1.0,), cell=1)]
    before = dict(room.turn.state.population)
    first, second = learn(outcomes, room.turn)
    assert room.turn.state.population == before
    store = room.turn.store
    for slot, (name, update, outcome) in enumerate(
        (("o1", first, outcomes[0]), ("o2", second, outcomes[1]))
    ):
        flops = sum(room.flops(name, rollout) for rollout in outcome.rollouts)
        cell = cell_name(outcome.assignment.cell)
        counts = len(outcome.rollouts), 100 + slot, flops
        found = update.learned
        at = room.turn.state.generation
        assert found == Learned(at, name, *counts, 0.5 + slot, 0.5 + slot, found.weights)
        assert (update.flops, update.is_sick) == ({cell: flops}, False)
        learned = store.weights(update.learned.weights).vector
        assert learned == pytest.approx(0.5 * room.weights[name].vector)
        state = store.optimizer_state(update.optimizer_state)
        assert (state.step, state.notes) == (4, {"met": len(outcome.rollouts)})


def test_a_rule_sees_the_practice_of_one_organelle_and_nothing_else(room: Class) -> None:
    state, store = room.turn.state, room.turn.store
    room.learner("o1", learning_rate=0.2, courage=0.5)
    notes = store.put_optimizer_state(OptimizerState(step=1, notes={"baseline": 0.25}))
    state.population["o1"] = replace(state.population["o1"], optimizer_state=notes)
    outcomes = [room.outcome(name, (1.0,)) for name in ("o1", "o2")]
    outcomes.append(room.outcome("o1", (0.0,), cell=1))
    for purpose in ("probation", "probe"):
        outcomes.append(room.outcome("o1", (0.0,), purpose=purpose))
    outcomes.append(room.outcome("o1", (0.0,), is_exam=True))
    learn(outcomes, room.turn)
    first, second = room.rule.seen
    assert first == Experience((outcomes[0], outcomes[2]), {"baseline": 0.25})
    assert second.outcomes == (outcomes[1],)


def test_gold_answers_come_as_tokens_to_rules_that_see_gold(tmp_path: Path) -> None:
    room = school(tmp_path, Golden())
    outcomes = [room.outcome("o1", (1.0, 0.0)), room.outcome("o1", (1.0,), cell=1)]
    learn(outcomes, room.turn)
    (seen,) = room.rule.seen
    answers = {item.answer for outcome in outcomes for item in outcome.assignment.items}
    assert seen.reference_ids == {text: (*map(ord, text), 1) for text in answers}


def test_dropout_is_a_trait_and_a_step_gets_smaller_with_age(room: Class) -> None:
    room.learner("o1", learning_rate=0.2, dropout=0.3)
    room.learner("o2", learning_rate=0.2, aging=1.0)  # three updates old
    learn([room.outcome("o1", (1.0,)), room.outcome("o2", (1.0,))], room.turn)
    (batch,) = room.host.batches
    assert batch.dropout == {0: 0.3, 1: 0.0}
    assert batch.learning_rates == {0: 0.2, 1: pytest.approx(0.1)}


def test_who_cannot_learn_gets_no_lesson_and_pays_for_none(room: Class) -> None:
    room.learner("o1", learning_rate=0.0)
    (update,) = learn([room.outcome("o1", (1.0,))], room.turn)
    assert (room.host.batches, room.rule.seen) == ([], [])
    learned = update.learned
    assert (learned.lessons, learned.tokens, learned.flops) == (0, 0, 0)
    assert (learned.loss, learned.gradient_norm) == (0.0, 0.0)
    assert learned.weights == room.turn.state.genome("o1").weights
    assert update.optimizer_state == room.turn.state.population["o1"].optimizer_state
    assert room.turn.state.spent == Cost()


def test_tokens_that_the_host_does_not_have_are_a_fault_of_the_rule(room: Class) -> None:
    outcome = room.outcome("o1", (1.0,))
    vocab = room.host.shape.vocab
    for token, lessons in ((vocab - 1, 1), (vocab, 0)):
        rollouts = tuple(replace(one, token_ids=(token,)) for one in outcome.rollouts)
        (update,) = learn([replace(outcome, rollouts=rollouts)], room.turn)
        assert update.learned.lessons == lessons


# The price.


def test_the_run_pays_for_all_lessons_and_each_call(room: Class) -> None:
    outcomes = [room.outcome("o1", (1.0, 0.0)), room.outcome("o3", (1.0,), cell=1)]
    learn([*outcomes, room.outcome("o2", (1.0,))], room.turn)
    everything = [*outcomes, room.outcome("o2", (1.0,))]
    rollouts = [(one.organelle_id, one) for outcome in everything for one in outcome.rollouts]
    spent, flops = room.turn.state.spent, sum(room.flops(*one) for one in rollouts)
    assert (spent.flops, spent.executed, spent.calls, spent.rows) == (flops, flops, 2, 0)
    assert spent.tokens_in == sum(one.cost.tokens_in for _, one in rollouts)
    assert spent.tokens_out == sum(one.cost.tokens_out for _, one in rollouts)


def test_a_prompt_of_several_lessons_is_read_once(room: Class) -> None:
    (item,) = room.items(1)
    rollouts = tuple(answer(item, "o1", verdict) for verdict in (1.0, 0.0, 1.0))
    (update,) = learn([Outcome(Assignment("o1", (item,), 3), rollouts)], room.turn)
    each = room.flops("o1", rollouts[0])
    read = room.host.shape.learning_flops(LAYOUT.size(2), len(item.prompt) + 1, 0)
    spent = room.turn.state.spent
    assert update.learned.flops == spent.flops == 3 * each
    assert spent.executed == 3 * each - 2 * read


def test_lessons_beyond_what_is_left_are_not_learned(room: Class) -> None:
    outcomes = [room.outcome("o1", (1.0, 0.0, 1.0)), room.outcome("o3", (1.0, 1.0, 0.0))]
    costs = [room.flops(one.organelle_id, one) for of in outcomes for one in of.rollouts]
    left = sum(costs) // 2
    room.turn.state.spent = Cost(flops=1000)
    updates = learn(outcomes, replace(room.turn, until=1000 + left))
    spent = room.turn.state.spent.flops - 1000
    assert left - max(costs) < spent <= left
    assert sum(update.learned.lessons for update in updates) < len(costs)
    chosen = set[int]()
    for number in room.turn.draw("lessons").permutation(len(costs)):
        if costs[number] <= left:
            left -= costs[number]
            chosen.add(int(number))
    counts = [sum(place in chosen for place in part) for part in (range(3), range(3, 6))]
    assert [update.learned.lessons for update in updates] == counts


def test_the_cheapest_lesson_is_learned_where_none_can_be_paid_for(room: Class) -> None:
    outcomes = [room.outcome("o3", (1.0,)), room.outcome("o1", (1.0,), cell=1)]
    (cheap, dear) = learn(outcomes, replace(room.turn, until=1.0))
    costs = {one.assignment.organelle_id: one.rollouts[0] for one in outcomes}
    least = min(costs, key=lambda name: room.flops(name, costs[name]))
    lessons = {one.learned.id: one.learned.lessons for one in (cheap, dear)}
    assert lessons == {name: int(name == least) for name in ("o1", "o3")}
    room.turn.state.spent = Cost(flops=7)
    for until in (7.0, 6.0):  # nothing is left at all
        updates = learn(outcomes, replace(room.turn, until=until))
        assert [update.learned.lessons for update in updates] == [0, 0]


# What is not finite.


@pytest.mark.parametrize("what", ["loss", "norm", "weights"])
def test_who_meets_a_number_that_is_not_finite_is_sick_and_stays_what_it_was(
    what: str, tmp_path: Path
) -> None:
    room = school(tmp_path, broken={1: what})
    outcomes = [room.outcome(name, (1.0,)) for name in ("o1", "o2")]
    well, ill = learn(outcomes, room.turn)
    assert (well.is_sick, ill.is_sick) == (False, True)
    assert (ill.learned.loss, ill.learned.gradient_norm) == (0.0, 0.0)
    assert (well.learned.loss, well.learned.gradient_norm) == (0.5, 0.5)
    assert ill.learned.weights == room.turn.state.genome("o2").weights
    assert room.turn.store.optimizer_state(ill.optimizer_state).step == 3
    assert well.learned.weights != room.turn.state.genome("o1").weights
    assert room.turn.store.optimizer_state(well.optimizer_state).step == 4
