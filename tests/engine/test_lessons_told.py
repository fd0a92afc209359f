"""Lessons from what is remembered, beside the host, and by traces: at which price, and what
comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from classroom import Class, Comparing, Told, answer, by_name, school
from symbiont_ecology.ecology import Assignment, Outcome, RememberedAnswer
from symbiont_ecology.economics import Cost, tracing_flops
from symbiont_ecology.engine.learn import learn, learn_answers
from symbiont_ecology.learning import Experience, Targets, WeightedTarget
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import Decoding, Item, Lesson, Request, cell_name
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import ascended, with_random_b
from toy import LAYOUT


@pytest.fixture
def room(tmp_path: Path) -> Class:
    return school(tmp_path)


# Replay.


def remembered(item: Item, who: str) -> RememberedAnswer:
    return RememberedAnswer(item.family, item.depth, item.prompt, (7, 1), True, organelle_id=who)


def test_what_is_remembered_is_learned_beside_practice_or_without_it(tmp_path: Path) -> None:
    room = school(tmp_path, Told(replay=2.0))
    (item,) = room.items(1)
    state = room.turn.state
    state.population["o3"] = state.population["o3"].remembering([remembered(item, "o3")])
    first, third = learn([room.outcome("o1", (1.0,))], room.turn)
    assert [first.learned.lessons, third.learned.lessons] == [1, 2]
    by_rule = {len(one.outcomes): one for one in room.rule.seen}
    assert by_rule[1].remembered == ()
    assert by_rule[0].remembered == (remembered(item, "o3"),) * 2
    lessons = room.host.batches[0].lessons
    assert lessons[1:] == (Lesson(item.prompt, (7, 1), 1, 3.0),) * 2


def test_answers_are_learned_in_one_step_whatever_the_rule_is(tmp_path: Path) -> None:
    room = school(tmp_path, Told(is_absent=True))
    answers = [remembered(item, "o9") for item in room.items(2)]
    (update,) = learn_answers({"o2": answers}, room.turn)
    (batch,) = room.host.batches
    assert batch.lessons == tuple(Lesson(one.prompt, (7, 1), 0, 1.0) for one in answers)
    assert batch.learning_rates == {0: 0.1}
    ((weights, states),) = room.host.given
    assert (weights, states[0].step) == ({0: room.weights["o2"]}, 3)
    flops = sum(
        room.host.shape.learning_flops(LAYOUT.size(3), len(one.prompt) + 1, 2) for one in answers
    )
    assert (update.learned.id, update.learned.lessons, update.learned.flops) == ("o2", 2, flops)
    assert update.flops == {cell_name(room.turn.tasks.cells[0]): flops}
    assert room.turn.state.spent.flops == flops


def test_organelles_that_have_answers_to_learn_are_one_batch(tmp_path: Path) -> None:
    room = school(tmp_path, Told(is_absent=True))
    first, second = (remembered(item, "o9") for item in room.items(2))
    updates = learn_answers({"o2": [second], "o1": [first]}, room.turn)
    assert [update.learned.id for update in updates] == ["o1", "o2"]
    (batch,) = room.host.batches
    assert [(lesson.prompt, lesson.slot) for lesson in batch.lessons] == [
        (first.prompt, 0),
        (second.prompt, 1),
    ]


# Rules that compare with the host.


def test_the_hosts_log_probabilities_are_read_for_who_learns_and_charged_with_the_cell(
    tmp_path: Path,
) -> None:
    room = school(tmp_path, Comparing())
    room.learner("o2", learning_rate=0.0)
    outcomes = [room.outcome("o1", (1.0, 1.0)), room.outcome("o2", (1.0,))]
    updates = by_name(learn(outcomes, room.turn))
    assert room.host.scored == [2]
    (seen,) = room.rule.seen
    found = [one.host_log_probabilities for one in seen.outcomes[0].rollouts]
    assert all(values is not None and values[0] < 0 for values in found)
    rollouts = outcomes[0].rollouts
    shape = room.host.shape
    reading = sum(
        shape.scoring_flops(0, one.cost.tokens_in, one.cost.tokens_out) for one in rollouts
    )
    lessons = sum(room.flops("o1", one) for one in rollouts)
    cell = cell_name(room.turn.tasks.cells[0])
    assert updates["o1"].flops == {cell: reading + lessons}
    assert updates["o1"].learned.flops == reading + lessons
    assert updates["o2"].flops == {}
    assert room.turn.state.spent.flops == reading + lessons
    assert room.turn.state.spent.calls == 2


# Rules that perturb.


def heard(room: Class, who: str, verdicts: Sequence[float]) -> Outcome:
    """Answers of the toy itself, with their traces."""
    items = room.items(len(verdicts))
    slot = room.host.slots - 1
    room.host.place(slot, room.weights[who])
    rows = [Request(item.prompt, slot) for item in items]
    draws = [Draw(0)("row", place) for place in range(len(rows))]
    done = room.host.rollout(rows, draws, Decoding(0.0, perturbation=room.rule.perturbation))
    rollouts = tuple(
        replace(answer(item, who, verdict), token_ids=done[row].token_ids, trace=done[row].trace)
        for row, (item, verdict) in enumerate(zip(items, verdicts, strict=True))
    )
    return Outcome(Assignment(who, items), rollouts)


def test_a_step_by_traces_goes_up_the_mean_of_weight_and_trace(tmp_path: Path) -> None:
    room = school(tmp_path, Told(perturbation=0.5))
    outcomes = [heard(room, "o1", (1.0, 0.0, 1.0)), heard(room, "o2", (0.0,))]
    before = room.weights
    updates = by_name(learn(outcomes, room.turn))
    assert room.host.batches == []
    for name, outcome in zip(("o1", "o2"), outcomes, strict=True):
        traces = [one.trace for one in outcome.rollouts if one.trace is not None]
        shares = [(2 * one.verdict - 1) / len(outcome.rollouts) for one in outcome.rollouts]
        rows, rank = [trace.row for trace in traces], before[name].rank
        credit = traces[0].traces.credit(rows, shares, rank)
        notes = {"met": float(len(rows))}
        weights, state = ascended(before[name], OptimizerState(3, notes=notes), credit, 0.1)
        learned = updates[name].learned
        assert room.turn.store.weights(learned.weights).vector == pytest.approx(weights.vector)
        after = room.turn.store.optimizer_state(updates[name].optimizer_state)
        assert (after.step, after.notes) == (state.step, notes)
        tokens = sum(len(one.token_ids) for one in outcome.rollouts)
        assert (learned.lessons, learned.tokens) == (len(rows), tokens)
        assert learned.gradient_norm == pytest.approx(float(np.linalg.norm(credit)))
        assert learned.loss == 0.0
        flops = sum(tracing_flops(rank * 12, len(one.token_ids)) for one in outcome.rollouts)
        assert learned.flops == flops
    spent = room.turn.state.spent
    total = sum(update.learned.flops for update in updates.values())
    assert spent == Cost(flops=total, executed=total)


@dataclass(frozen=True)
class Tokenwise(Told):
    """A weight for each token of an answer."""

    def targets(self, experience: Experience) -> Targets:
        """2 for every token."""
        rollouts = experience.outcomes[0].rollouts
        targets = [WeightedTarget.of(one, (2.0,) * len(one.token_ids)) for one in rollouts]
        return targets, experience.notes


def test_a_step_by_traces_takes_a_weight_for_each_token(tmp_path: Path) -> None:
    room = school(tmp_path, Tokenwise(perturbation=0.5))
    outcome = heard(room, "o1", (1.0, 0.0))
    short = tuple(replace(one, token_ids=one.token_ids[:1]) for one in outcome.rollouts)
    (update,) = learn([replace(outcome, rollouts=short)], room.turn)
    traces = [one.trace for one in short if one.trace is not None]
    credit = traces[0].traces.credit([trace.row for trace in traces], [1.0, 1.0], 2)
    assert update.learned.gradient_norm == pytest.approx(float(np.linalg.norm(credit)))


def test_who_is_deaf_wakes_up_and_learns_later(tmp_path: Path) -> None:
    room = school(tmp_path, Told(perturbation=0.5))
    state, store = room.turn.state, room.turn.store
    silent = AdapterWeights.random(LAYOUT, 2, 1.0, np.random.default_rng(5))
    genome = replace(state.genome("o1"), weights=store.put_weights(silent))
    state.population["o1"] = replace(state.population["o1"], genome=genome)
    update, other = learn([heard(room, "o1", (1.0,)), heard(room, "o2", (1.0,))], room.turn)
    assert (update.learned.lessons, update.learned.flops) == (0, 0)
    assert store.optimizer_state(other.optimizer_state).step == 4  # who hears learns all the same
    woken = with_random_b(silent, room.turn.draw("wake", "o1"))
    assert store.weights(update.learned.weights).vector.tobytes() == woken.vector.tobytes()


def test_a_step_by_traces_that_is_not_finite_is_not_taken(tmp_path: Path) -> None:
    room = school(tmp_path, Told(perturbation=0.5))
    outcomes = [heard(room, "o1", (1.0,)), heard(room, "o2", (1.0,))]
    trace = outcomes[0].rollouts[0].trace
    assert trace is not None
    read, _ = trace.traces.modules["policy"]
    read[trace.row] = np.nan
    ill, well = learn(outcomes, room.turn)
    assert (ill.is_sick, well.is_sick) == (True, False)
    assert ill.learned.weights == room.turn.state.genome("o1").weights
    assert ill.learned.gradient_norm == 0.0
    assert room.turn.store.optimizer_state(ill.optimizer_state).step == 3
    assert room.turn.store.optimizer_state(well.optimizer_state).step == 4


def test_nobody_learns_where_nobody_practised(room: Class) -> None:
    assert learn([], room.turn) == []
    assert learn([room.outcome("o1", (1.0,), purpose="probation")], room.turn) == []
    assert room.turn.state.spent == Cost()
