"""The learning step, entry by entry: who is taught what, at which price, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from lives import adapter, founded
from symbiont_ecology.ecology import Assignment, Outcome, RememberedAnswer, Rollout, cell_name
from symbiont_ecology.economics import Cost, tracing_flops
from symbiont_ecology.engine.learn import Update, learn, learn_answers, step_size
from symbiont_ecology.engine.runtime import Turn
from symbiont_ecology.events import Learned
from symbiont_ecology.learning import (
    Experience,
    LearningRule,
    Targets,
    WeightedTarget,
    learning_rules,
)
from symbiont_ecology.rng import Draw
from symbiont_ecology.types import (
    Decoding,
    Item,
    LearningBatch,
    LearningStatistics,
    Lesson,
    Request,
)
from symbiont_ecology.weights import AdapterWeights, OptimizerState
from symbiont_ecology.weights.traces import ascended, awoken
from toy import LAYOUT, ToyHost

States = Mapping[int, OptimizerState]


@dataclass
class Scribe(ToyHost):
    """A toy that writes down what it is to learn. ``broken`` says of a slot which number of its
    own is not finite: its loss, its norm, or its weights; ``sick`` slots it notices itself."""

    slots: int = 2
    batches: list[LearningBatch] = field(default_factory=list)
    given: list[tuple[Mapping[int, AdapterWeights], States]] = field(default_factory=list)
    broken: Mapping[int, str] = field(default_factory=dict)
    sick: tuple[int, ...] = ()

    def learn(
        self, batch: LearningBatch, weights: Mapping[int, AdapterWeights], optimizer_state: States
    ) -> tuple[dict[int, AdapterWeights], dict[int, OptimizerState], LearningStatistics]:
        """Weights become half of what they were, and everybody is a step older."""
        self.batches.append(batch)
        self.given.append((dict(weights), dict(optimizer_state)))
        new = {slot: replace(one, vector=0.5 * one.vector) for slot, one in weights.items()}
        states = {slot: replace(one, step=one.step + 1) for slot, one in optimizer_state.items()}
        told = {name: {slot: 0.5 + slot for slot in weights} for name in ("loss", "norm")}
        for slot, what in self.broken.items():
            if what == "weights":
                vector = new[slot].vector.copy()
                vector[-1] = np.inf
                new[slot] = replace(new[slot], vector=vector)
            else:
                told[what][slot] = math.nan
        tokens = {slot: 100 + slot for slot in weights}
        return new, states, LearningStatistics(told["loss"], told["norm"], tokens, self.sick)


@dataclass(frozen=True)
class Told(LearningRule):
    """Imitates every rollout with weights by its verdict, keeps a note, and remembers what it
    saw."""

    perturbation: float = 0.0
    replay: float = 0.0
    is_absent: bool = False
    seen: list[Experience] = field(default_factory=list)

    def targets(self, experience: Experience) -> Targets:
        """Everything."""
        self.seen.append(experience)
        if self.is_absent:
            raise ValueError("not today")
        rollouts = [one for outcome in experience.outcomes for one in outcome.rollouts]
        targets = [WeightedTarget.of(rollout, 2 * rollout.verdict - 1) for rollout in rollouts]
        targets += [WeightedTarget(one.item, one.token_ids, 3.0) for one in experience.remembered]
        return targets, {**experience.notes, "met": float(len(rollouts))}


@dataclass(frozen=True)
class Golden(Told):
    """The same, and sees gold."""

    sees_gold: ClassVar[bool] = True


@dataclass(frozen=True)
class Comparing(Told):
    """The same, and compares with the host."""

    needs_host_log_probabilities: ClassVar[bool] = True


@dataclass
class Class:
    """A turn in which three organelles, of ranks 2, 3 and 4, may learn."""

    turn: Turn
    host: Scribe
    rule: Told

    @property
    def weights(self) -> dict[str, AdapterWeights]:
        return {
            name: self.turn.store.weights(one.genome.weights)
            for name, one in self.turn.state.population.items()
        }

    def items(self, count: int, cell: int = 0) -> tuple[Item, ...]:
        return self.turn.tasks.draw(self.turn.tasks.cells[cell], count, np.random.default_rng(3))

    def outcome(self, who: str, verdicts: Sequence[float], cell: int = 0, **facts: Any) -> Outcome:
        """Each question is answered once, rightly said in two tokens."""
        items = self.items(len(verdicts), cell)
        return Outcome(
            Assignment(who, items, **facts),
            tuple(answer(item, who, one) for item, one in zip(items, verdicts, strict=True)),
        )

    def learner(self, name: str, **traits: float) -> None:
        """Gives an organelle other traits."""
        one = self.turn.state.population[name]
        genome = replace(one.genome, traits=traits)
        self.turn.state.population[name] = replace(one, genome=genome)

    def flops(self, name: str, rollout: Rollout) -> int:
        """Of a lesson, forward and backward."""
        lora = LAYOUT.size(self.weights[name].rank)
        read = len(rollout.item.prompt) + 1
        return self.host.shape.learning_flops(lora, read, len(rollout.token_ids))


def answer(item: Item, who: str, verdict: float) -> Rollout:
    tokens = (*map(ord, item.answer), 1)
    cost = Cost(len(item.prompt) + 1, len(tokens), rows=1, flops=9)
    return Rollout(item, who, tokens, np.zeros(len(tokens)), item.answer, verdict, verdict, cost)


def school(folder: Path, rule: Told | None = None, **host: Any) -> Class:
    adapters = [adapter(seed, rank) for seed, rank in ((1, 2), (2, 3), (3, 4))]
    state, world = founded(folder, adapters, ("math.add", "string.sort"))
    rule, scribe = rule or Told(), Scribe(**host)
    turn = replace(world, host=scribe, learning_rule=rule).at(state, 0.0, math.inf)
    return Class(turn, scribe, rule)


@pytest.fixture
def room(tmp_path: Path) -> Class:
    return school(tmp_path)


def by_name(updates: Sequence[Update]) -> dict[str, Update]:
    return {update.learned.id: update for update in updates}


# A wave.


def test_everyone_learns_its_own_lessons_in_a_slot_of_its_own(room: Class) -> None:
    outcomes = [room.outcome("o3", (1.0, 0.0)), room.outcome("o1", (1.0,), cell=1)]
    outcomes.append(room.outcome("o2", (0.5,)))
    before, updates = room.weights, by_name(learn(outcomes, room.turn))
    first, second = room.host.batches
    lessons = {
        who: tuple(
            Lesson(one.item.prompt, one.token_ids, slot, 2 * one.verdict - 1)
            for one in outcomes[place].rollouts
        )
        for who, slot, place in (("o1", 0, 1), ("o2", 1, 2), ("o3", 0, 0))
    }
    assert first.lessons == lessons["o1"] + lessons["o2"]
    assert second.lessons == lessons["o3"]
    assert list(updates) == ["o1", "o2", "o3"]
    for batch, names, (weights, states) in zip(
        (first, second), (("o1", "o2"), ("o3",)), room.host.given, strict=True
    ):
        assert weights == {slot: before[name] for slot, name in enumerate(names)}
        assert [state.step for state in states.values()] == [3] * len(names)
        assert batch.learning_rates == dict.fromkeys(range(len(names)), 0.1)
        assert batch.dropout == dict.fromkeys(range(len(names)), 0.0)
        assert batch.dropout_seeds == {
            slot: room.turn.draw.key("dropout", name) for slot, name in enumerate(names)
        }


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
        assert update.learned == Learned(
            room.turn.state.generation,
            name,
            lessons=len(outcome.rollouts),
            tokens=100 + slot,
            flops=flops,
            loss=0.5 + slot,
            gradient_norm=0.5 + slot,
            weights=update.learned.weights,
        )
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
    outcomes = [
        room.outcome("o1", (1.0,)),
        room.outcome("o2", (1.0,)),
        room.outcome("o1", (0.0,), cell=1),
        room.outcome("o1", (0.0,), purpose="probation"),
        room.outcome("o1", (0.0,), purpose="probe"),
        room.outcome("o1", (0.0,), is_exam=True),
    ]
    learn(outcomes, room.turn)
    first, second = room.rule.seen
    assert first == Experience(
        (outcomes[0], outcomes[2]), {"baseline": 0.25}, {"learning_rate": 0.2, "courage": 0.5}
    )
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


def test_a_step_falls_with_the_root_of_age() -> None:
    traits = {"learning_rate": 0.6, "aging": 10.0}
    assert [step_size(traits, age) for age in (0, 30, 80)] == pytest.approx([0.6, 0.3, 0.2])
    assert step_size({"learning_rate": 0.6}, 80) == step_size({**traits, "aging": 0.0}, 80) == 0.6
    assert step_size({}, 5) == 0.0
    assert step_size({**traits, "aging": 1.0}, 3) == pytest.approx(0.3)


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


def test_a_rule_that_fails_teaches_nothing_and_keeps_its_notes(tmp_path: Path) -> None:
    room = school(tmp_path, Told(is_absent=True))
    state = room.turn.store.put_optimizer_state(OptimizerState(step=1, notes={"a": 0.25}))
    population = room.turn.state.population
    population["o1"] = replace(population["o1"], optimizer_state=state)
    (update,) = learn([room.outcome("o1", (1.0,))], room.turn)
    assert update.learned.lessons == 0
    assert update.optimizer_state == state
    (tally,) = room.turn.faults.tallies.values()
    assert (tally.calls, tally.failed) == (1, 1)
    assert list(room.turn.faults.tallies) == [learning_rules.called(room.rule)]
    assert "not today" in tally.fault


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
    rollouts = [
        (one.assignment.organelle_id, rollout) for one in everything for rollout in one.rollouts
    ]
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


def test_a_phrase_is_read_in_front_of_every_question(room: Class) -> None:
    state, store = room.turn.state, room.turn.store
    said = replace(room.weights["o1"], phrase="Say: ")
    genome = replace(state.genome("o1"), weights=store.put_weights(said))
    state.population["o1"] = replace(state.population["o1"], genome=genome)
    outcome = room.outcome("o1", (1.0,))
    (update,) = learn([outcome], room.turn)
    (lesson,) = room.host.batches[0].lessons
    prompt = outcome.rollouts[0].item.prompt
    assert lesson.prompt == f"Say: {prompt}"
    lora, read = LAYOUT.size(2), len(lesson.prompt) + 1
    assert update.learned.flops == room.host.shape.learning_flops(
        lora, read, len(lesson.completion)
    )
    assert store.weights(update.learned.weights).phrase == "Say: "


def test_lessons_beyond_what_is_left_are_not_learned(room: Class) -> None:
    outcomes = [room.outcome("o1", (1.0, 0.0, 1.0)), room.outcome("o3", (1.0, 1.0, 0.0))]
    costs = [
        room.flops(outcome.assignment.organelle_id, one)
        for outcome in outcomes
        for one in outcome.rollouts
    ]
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


def test_who_the_host_calls_sick_is_sick(tmp_path: Path) -> None:
    room = school(tmp_path, sick=(0,), broken={1: "loss"})
    updates = learn([room.outcome(name, (1.0,)) for name in ("o1", "o2")], room.turn)
    assert [update.is_sick for update in updates] == [True, True]


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
    update = learn_answers("o2", answers, room.turn)
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
    (update,) = learn([heard(room, "o1", (1.0,))], room.turn)
    assert (update.learned.lessons, update.learned.flops) == (0, 0)
    woken = awoken(silent, room.turn.draw("wake", "o1"))
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
