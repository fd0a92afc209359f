"""Lessons from what is remembered, beside the host, and by an estimator of the rule's own: at which
price, and what comes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from classroom import Comparing, Told, by_name, school
from symbiont_ecology.base.flops import Cost
from symbiont_ecology.base.types import Item, LearningStatistics, Lesson, cell_name
from symbiont_ecology.ecology import Assignment, RememberedAnswer
from symbiont_ecology.ecology.learning import WeightedTarget
from symbiont_ecology.run.act import act
from symbiont_ecology.run.learn import learn, learn_answers
from toy import LAYOUT

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


# Rules with a gradient estimator of their own.


class Doubling:
    """Notes the slot of every row, and doubles the weights of learners with lessons; those of o2
    are no numbers."""

    def rollout(self, host: Any, rows: Any, draws: Any, decoding: Any) -> Any:
        return host.rollout(rows, draws, decoding), [f"slot {row.slot}" for row in rows]

    def cost(self, host: Any, rank: int, target: WeightedTarget) -> Cost:
        return Cost(flops=10 * rank)

    def learn(self, learners: Any, draw: Any) -> Any:
        new = {one.slot: 2 * one.weights.vector for one in learners if one.lessons}
        if 1 in new:
            new[1][0] = np.nan
        weights = {slot: replace(learners[slot].weights, vector=v) for slot, v in new.items()}
        return weights, {}, LearningStatistics({}, dict.fromkeys(new, 1.0), dict.fromkeys(new, 7))


def test_an_estimator_answers_and_learns_in_place_of_the_host(tmp_path: Path) -> None:
    room = school(tmp_path, Told(estimator=Doubling()))
    before = room.weights
    asked = [Assignment(name, room.items(2)) for name in ("o1", "o2")]
    outcomes = act(asked, room.turn)
    extras = [rollout.extra for outcome in outcomes for rollout in outcome.rollouts]
    assert extras == ["slot 0"] * 2 + ["slot 1"] * 2
    spent = room.turn.state.spent
    well, ill = learn(outcomes, room.turn)
    assert room.host.batches == []
    doubled = room.turn.store.weights(well.learned.weights).vector
    assert np.array_equal(doubled, 2 * before["o1"].vector)
    assert (well.learned.lessons, well.learned.tokens, well.learned.flops) == (2, 7, 2 * 10 * 2)
    assert (ill.is_sick, ill.learned.weights) == (True, room.turn.state.genome("o2").weights)
    assert room.turn.state.spent == spent + Cost(flops=2 * 10 * 2 + 2 * 10 * 3)
    (update,) = learn_answers({"o1": [remembered(room.items(1)[0], "o1")]}, room.turn)
    assert update.learned.lessons == len(room.host.batches) == 1  # by a backward pass
