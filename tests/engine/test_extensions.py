"""Methods of others on the engine: each does what it is known for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exams import (
    EXAMS,
    EXPERTS,
    FAMILIES,
    OF_FULL_RANK,
    delta,
    flipping,
    lived,
    mark,
    parents,
    plan,
    retired,
    told,
    turn_of,
    variants_in_exams,
    world_of,
)
from lives import adapter, generations, specialist
from symbiont_ecology.config import Climate
from symbiont_ecology.ecology.state import EcologyState, load_state
from symbiont_ecology.engine.build import check
from symbiont_ecology.engine.generation import execute
from symbiont_ecology.engine.runtime import Runtime
from symbiont_ecology.errors import ConfigError
from symbiont_ecology.evaluation.measure import LoadedRun
from symbiont_ecology.events import Acted, Ascended, Born, Retired, Scored
from symbiont_ecology.strategies.controls import NICHE
from symbiont_ecology.strategies.corp import is_for_gate
from symbiont_ecology.strategies.cycleqd import archive_of
from symbiont_ecology.tasks.grading import final_answer
from toy import ToyHost, toy_runtime

# Exams.


@pytest.mark.parametrize("kind", EXAMS)
def test_nobody_is_asked_a_question_of_the_exam_twice(kind: str, tmp_path: Path) -> None:
    asked = Counter[tuple[str, str]]()
    for event in lived(tmp_path / "run", plan(kind=kind, population=4, questions=6)):
        if isinstance(event, Acted) and event.purpose == "practice":
            asked.update((event.id, item) for item in event.items)
    assert len(asked) > 100
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("kind", EXAMS)
def test_everyone_sits_the_exam_again_when_the_world_changes(kind: str, tmp_path: Path) -> None:
    lived(tmp_path / "run", flipping(tmp_path, plan(12, kind=kind, population=4, questions=6)))
    now = load_state(tmp_path / "run").population.values()
    assert len({frozenset(one.marks) for one in now if one.score is not None}) == 1
    (variants, *_) = variants_in_exams(load_state(tmp_path / "run"))
    assert len(variants) == 1


def test_an_exam_that_is_not_complete_decides_nothing(tmp_path: Path) -> None:
    state, world = world_of(tmp_path, plan(kind="m2n2", population=2), [adapter(1), adapter(2)])
    mark(state, world, [{FAMILIES[0]: 1.0}, {}])
    assert parents(told(state, world))
    state.population["o2"] = replace(state.population["o2"], marks={}, score=None)
    assert told(state, world) == []


def test_experts_learn_a_family_each_before_they_compete(tmp_path: Path) -> None:
    school = {"schooling": 20, "samples": 3, "learning_rate": 0.1}
    config = plan(25, rule="expert_iteration", kind="m2n2", population=2, **school)
    taught: dict[str, set[str]] = defaultdict(set)
    scores = {}
    for event in lived(tmp_path / "run", config):
        if isinstance(event, Acted) and event.purpose == "practice" and event.generation < 20:
            taught[event.id].add(event.cell)
        elif isinstance(event, Scored):
            scores[event.id] = event.score
    assert taught == {"o1": {"math.add/short"}, "o2": {"string.sort/short"}}
    assert max(scores.values()) > 0.6


@pytest.mark.parametrize(
    ("kind", "toll"), [*((kind, 1.0) for kind in EXPERTS), ("mixing", 0.8), ("swarm", 0.8)]
)
def test_who_is_founded_anew_learns_before_it_competes(
    kind: str, toll: float, tmp_path: Path
) -> None:
    """A catastrophe at generation 8 takes some of the experts, or all."""
    school = {"schooling": 4, "samples": 3, "learning_rate": 0.1}
    config = plan(15, rule="expert_iteration", kind=kind, population=2, **school)
    config = config.model_copy(update={"climate": Climate(catastrophes=(8,), toll=toll)})
    lessons, exams = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    newcomers = set[str]()
    for event in lived(tmp_path / "run", config):
        if isinstance(event, Born) and not event.parents and event.generation >= 8:
            newcomers.add(event.id)
        elif isinstance(event, Acted) and event.purpose == "practice":
            (lessons if event.samples == 3 else exams)[event.id].append(event.generation)
    assert newcomers
    for name in newcomers:
        assert sorted(set(lessons[name])) == [9, 10, 11, 12]
        assert set(exams[name]) == {13}
    assert not {9, 10, 11, 12} & {when for generations in exams.values() for when in generations}


# CycleQD.


def test_the_quality_changes_by_turns(tmp_path: Path) -> None:
    """o3 is an elite of the second task alone, o4 of the first alone; both stay, and each is a
    parent only when its task is the quality."""
    knobs = {"kind": "cycleqd", "population": 4, "offspring": 40}
    state, world = world_of(tmp_path, plan(**knobs), [adapter(seed) for seed in range(5)])
    first, second = FAMILIES
    marks = [{first: 1.0}, {second: 1.0}, {first: 0.4}, {second: 0.4}, {}]
    mark(state, world, marks)
    drawn = {}
    for generation in (4, 5):
        state.generation = generation
        decisions = told(state, world)
        assert retired(decisions) == {"o5"}
        drawn[generation] = {name for pair in parents(decisions) for name in pair}
    assert drawn == {4: {"o1", "o2", "o4"}, 5: {"o1", "o2", "o3"}}


def test_the_better_elites_have_more_children(tmp_path: Path) -> None:
    knobs = {"kind": "cycleqd", "population": 4, "offspring": 400}
    state, world = world_of(tmp_path, plan(**knobs), [adapter(seed) for seed in range(3)])
    first, second = FAMILIES
    mark(state, world, [{first: 1.0, second: 1.0}, {first: 0.5, second: 0.5}, {}])
    count = Counter(name for pair in parents(told(state, world)) for name in pair)
    assert count["o1"] > count["o2"] > count["o3"] > 0


# M2N2.


def test_who_alone_answers_a_rare_question_outlives_one_of_many(tmp_path: Path) -> None:
    """o1 answers one question that nobody else answers; all others answer the same two."""
    config = plan(kind="m2n2", population=4, offspring=1)
    state, world = world_of(tmp_path, config, [adapter(seed) for seed in range(6)])
    strategy: Any = world.strategy
    rare, *common = [item.id for item in strategy.exam(turn_of(state, world).strategy_context)]
    mark(state, world, [{rare: 1.0}, *[dict.fromkeys(common[:2], 1.0)] * 5])
    decisions = told(state, world)
    assert len(retired(decisions)) == 2
    assert "o1" not in retired(decisions)


def test_mates_complete_each_other(tmp_path: Path) -> None:
    config = plan(kind="m2n2", population=4, offspring=30)
    state, world = world_of(tmp_path, config, [adapter(seed) for seed in range(4)])
    first, second = FAMILIES
    mark(state, world, [{first: 1.0}, {first: 1.0}, {second: 1.0}, {}])
    pairs = parents(told(state, world))
    assert len(pairs) == 30
    assert all("o3" in pair and "o4" not in pair for pair in pairs)


# Swarm.

SWARM = {"kind": "swarm", "population": 3, "fade": 1.0}


def moved(
    folder: Path, marks: Sequence[Mapping[str, float]], **knobs: Any
) -> tuple[EcologyState, Runtime, list[str]]:
    """The swarm after one move, and the new place of each particle."""
    state, world = world_of(folder, plan(**{**SWARM, **knobs}), OF_FULL_RANK)
    mark(state, world, marks)
    turn = turn_of(state, world)
    events = execute(world.strategy.tell(turn.strategy_context), turn)
    return state, world, [event.id for event in events if isinstance(event, Born)]


def test_particles_are_drawn_to_the_best(tmp_path: Path) -> None:
    marks = [{FAMILIES[0]: 1.0}, {FAMILIES[0]: 0.5}, {}]
    state, world, places = moved(tmp_path, marks, inertia=0.0, repel=0.0)
    best = delta(state, world, "o1")
    np.testing.assert_allclose(delta(state, world, places[0]), best, atol=1e-5)
    for before, now in zip(("o2", "o3"), places[1:], strict=True):
        way, gone = best - delta(state, world, before), delta(state, world, now)
        share = np.sum((gone - delta(state, world, before)) * way) / np.sum(way * way)
        assert 0 < share <= 1
        expected = delta(state, world, before) + share * way
        np.testing.assert_allclose(gone, expected, atol=1e-5)


def test_particles_are_driven_from_the_worst(tmp_path: Path) -> None:
    marks = [{FAMILIES[0]: 1.0}, {FAMILIES[0]: 0.5}, {}]
    state, world, places = moved(tmp_path, marks, inertia=0.0, own=0.01, social=0.0, repel=10.0)
    worst = delta(state, world, "o3")
    for before, now in zip(("o1", "o2"), places[:2], strict=True):
        far = np.linalg.norm(delta(state, world, now) - worst)
        assert far > 1.5 * np.linalg.norm(delta(state, world, before) - worst)


def test_a_particle_goes_on_as_it_went(tmp_path: Path) -> None:
    """Where there is next to nothing but inertia."""
    knobs = {"inertia": 1.0, "own": 1e-9, "social": 0.0, "repel": 0.0}
    marks = [{FAMILIES[0]: 1.0}, {FAMILIES[0]: 0.5}, {}]
    state, world, places = moved(tmp_path, marks, **knobs)
    state.generation += 1
    strategy: Any = world.strategy
    exam = [item.id for item in strategy.exam(turn_of(state, world).strategy_context)]
    for place in places:
        one = state.population[place]
        state.population[place] = replace(one, score=0.1, marks=dict.fromkeys(exam, 0.1))
    turn = turn_of(state, world)
    born = [
        e.id for e in execute(strategy.tell(turn.strategy_context), turn) if isinstance(e, Born)
    ]
    for before, now, then in zip(("o1", "o2", "o3"), places, born, strict=True):
        first = adapter(int(before[1]) - 1, rank=4).delta("policy")
        way = delta(state, world, now) - first
        assert np.linalg.norm(way) > 0.1
        np.testing.assert_allclose(
            delta(state, world, then), delta(state, world, now) + way, atol=1e-4
        )


def test_of_a_particle_three_places_are_kept_at_most(tmp_path: Path) -> None:
    lived(tmp_path / "run", plan(15, **SWARM))
    population = load_state(tmp_path / "run").population.values()
    particles = Counter(one.genome.traits[NICHE] for one in population)
    assert len(particles) == 3
    assert sum(particles.values()) <= 3 * 3 + 1  # and the worst place of all


# CoRP.

CORP = {"kind": "corp", "population": 12, "questions": 8, "noise": 0.5, "gate": 12}


@pytest.mark.parametrize("is_good", [True, False])
def test_only_what_is_better_on_held_out_questions_is_accepted(
    is_good: bool, tmp_path: Path
) -> None:
    able, unable = specialist(tmp_path / "able", FAMILIES[0]), adapter(1, b_std=0.0)
    pair = (unable, able) if is_good else (able, unable)
    state, world = world_of(tmp_path / "run", plan(**CORP), pair)
    (gone,) = [
        event
        for event in generations(1, state, world, tmp_path / "events.jsonl")
        if isinstance(event, Retired)
    ]
    assert (gone.id, gone.cause) == (("o1", "replaced") if is_good else ("o2", "refused"))


def test_equals_are_refused(tmp_path: Path) -> None:
    state, world = world_of(tmp_path, plan(**CORP), [adapter(1), adapter(1)])
    events = generations(1, state, world, tmp_path / "events.jsonl")
    assert [event.cause for event in events if isinstance(event, Retired)] == ["refused"]


def test_a_gate_asks_nothing_that_a_member_was_asked(tmp_path: Path) -> None:
    asked: dict[int, set[str]] = defaultdict(set)
    for event in lived(tmp_path / "run", plan(12, **CORP)):
        if isinstance(event, Acted) and event.purpose == "practice":
            asked[event.generation] |= {item.rsplit("/", 1)[-1] for item in event.items}
    config = plan(**CORP)
    mixture = toy_runtime(tmp_path / "other", config).tasks
    drawn = mixture.draw(mixture.cells[0], 200, np.random.default_rng(0))
    assert 0.1 < np.mean([is_for_gate(item) for item in drawn]) < 0.4
    gates = set().union(*(asked[generation] for generation in range(1, 12, 2)))
    assert gates
    assert not gates & set().union(*(asked[generation] for generation in range(0, 12, 2)))


def test_what_is_accepted_rises_and_the_adapter_is_else_left_alone(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", plan(60, **CORP))
    causes = Counter(event.cause for event in events if isinstance(event, Retired))
    assert causes["replaced"] >= 2
    assert causes["refused"] >= 1
    rewards = [np.mean(event.rewards) for event in events if isinstance(event, Ascended)]
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.1


# RandOpt.

RANDOPT = {"kind": "randopt", "population": 10, "keep": 3, "sizes": [0.2, 0.6], "questions": 10}


def test_the_best_of_all_newcomers_are_kept(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", plan(8, **RANDOPT))
    scores = {event.id: event.score for event in events if isinstance(event, Scored)}
    assert len(scores) == 80
    population = load_state(tmp_path / "run").population.values()
    kept = [one.score for one in population if one.score is not None]
    assert sorted(kept, reverse=True) == sorted(scores.values(), reverse=True)[:3]
    assert not any(event.parents for event in events if isinstance(event, Born))


def test_after_the_run_the_best_vote(tmp_path: Path) -> None:
    """Newcomers whom no exam has scored have no vote; in a tie the best has the say."""
    lived(tmp_path / "run", plan(8, **RANDOPT))
    run, host = LoadedRun.of_run(tmp_path / "run"), ToyHost()
    items, population = run.items(20), run.pool.state.population
    scores = {one.id: one.score for one in population.values() if one.score is not None}
    voters = sorted(scores, key=lambda name: -scores[name])
    assert len(voters) == 3 < len(population)

    def answers(name: str) -> list[str]:
        routing = (name, lambda pool, asked, ask: ask(asked, [name] * len(asked)))
        return [final_answer(one.text) for one in run.evaluate(items, host, routing).rollouts]

    ballots = list(zip(*map(answers, voters), strict=True))
    assert any(len(set(ballot)) > 1 for ballot in ballots)
    elected = run.evaluate(items, host, "majority").rollouts
    for ballot, rollout in zip(ballots, elected, strict=True):
        assert final_answer(rollout.text) == Counter(ballot).most_common(1)[0][0]
        assert rollout.cost.rows == 3


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"kind": "cycleqd", "mutation": "svd"}, r"expected an operator of 1 parent "),
        ({"kind": "m2n2", "crossover": "clone"}, r"expected an operator of 2 parents"),
        ({"kind": "m2n2", "mutation": "split"}, r"expected an operator of 1 parent "),
        ({"kind": "swarm", "own": 0.0, "social": 0.0}, r"strategy\.own: expected a weight above 0"),
        ({"kind": "mixing", "offspring": 1}, r"offspring.* greater than or equal to 2"),
        ({"kind": "randopt", "sizes": []}, r"strategy\.sizes: expected one number or more"),
        ({"kind": "corp", "level": 1.0}, r"level"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(strategy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(plan(**strategy))


def test_scores_outside_of_the_bins_are_in_the_outermost_ones() -> None:
    scores = {"o1": [0.2, 1.0], "o2": [0.3, 0.99], "o3": [-2.3, -7.0], "o4": [-2.4, 0.05]}
    assert archive_of(0, scores, bins=5) == ["o2", "o3"]
