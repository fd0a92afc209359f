"""Evolution of how to train: lives that are trainings, exams, and variants of the best."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exams import flipping, variants_in_exams
from runs import resume, start
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Event, Learned, Retired, Scored
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.evaluate.shifts import draw_shifts
from symbiont_ecology.run.build import check, mixture
from toy import Crash, ToyHost, toy_config

STEPS = 4
HYPER = {
    "kind": "hyper",
    "train_size": 24,
    "eval_size": 12,
    "batch": 6,
    "ranks": [1, 2, 4],
    "targets": [0],
    "learning_rates": [0.01, 0.03, 0.1, 0.3],
}


def config(lives: int = 3, **strategy: Any) -> Any:
    return toy_config(
        generations=lives * (STEPS + 1),
        strategy={**HYPER, **strategy},
        learning_rule="supervised",
        checkpoint_every=1,
    )


def lived(folder: Path, lives: int = 3, **strategy: Any) -> list[Event]:
    start(config(lives, **strategy), folder, host=ToyHost())
    return list(read_events(folder / "events.jsonl"))


def test_a_life_is_a_training_with_an_exam_at_its_end(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", lives=1)
    learned = defaultdict(list)
    for event in events:
        if isinstance(event, Learned) and event.lessons:
            learned[event.id].append(event.generation)
    assert len(learned) == 6
    assert all(generations == list(range(STEPS)) for generations in learned.values())
    scored = [event for event in events if isinstance(event, Scored)]
    assert {event.generation for event in scored} == {STEPS}
    assert len(scored) == 6


def test_everyone_meets_the_same_examples_in_the_same_order(tmp_path: Path) -> None:
    by_step: dict[tuple[int, str], set[tuple[str, ...]]] = defaultdict(set)
    for event in lived(tmp_path / "run", lives=2):
        if isinstance(event, Acted) and event.purpose == "practice":
            by_step[event.generation % (STEPS + 1), event.cell].add(event.items)
    assert all(len(items) == 1 for items in by_step.values())


def test_finished_variants_sit_the_exam_again_when_the_world_changes(tmp_path: Path) -> None:
    start(flipping(tmp_path, config(4)), tmp_path / "run", host=ToyHost())
    before, after = (variants_in_exams(load_state(tmp_path / name)) for name in ("calm", "run"))
    assert len(after) == len(before) > 1
    assert all(one == before[0] for one in before)
    assert all(one == after[0] != before[0] for one in after)


def test_no_finished_variant_is_trained_or_examined_again(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", lives=4)
    lessons, exams = defaultdict(int), defaultdict(int)
    for event in events:
        if isinstance(event, Learned) and event.lessons:
            lessons[event.id] += 1
        if isinstance(event, Scored):
            exams[event.id] += 1
    assert set(lessons.values()) == {STEPS}
    assert set(exams.values()) == {1}
    assert len(lessons) == 6 + 3 * 4


def test_a_variant_killed_in_mid_life_goes_on_and_trains_nobody_again(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    start(config(), whole, host=ToyHost())
    with pytest.raises(Crash):
        start(config(), broken, host=ToyHost(crash_at=9))
    host = ToyHost()
    resume(broken, host=host)
    for name in ("state.json", "events.jsonl"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    assert len(host.learned) < 3 * STEPS  # what was done before the crash is not done again


def test_a_variant_is_what_its_genes_say(tmp_path: Path) -> None:
    lived(tmp_path / "run", lives=1)
    state, store = load_state(tmp_path / "run"), BlobStore(tmp_path / "run" / "blobs")
    assert state.population
    for one in state.population.values():
        genes, weights = one.genome.traits, store.weights(one.genome.weights)
        assert weights.rank == one.genome.rank == genes["rank"]
        assert weights.scaling == genes["alpha"]
        assert genes["learning_rate"] in HYPER["learning_rates"]  # type: ignore[operator]


def test_the_best_stay_and_fitness_does_not_fall(tmp_path: Path) -> None:
    best, alive = list[float](), dict[str, float]()
    for event in lived(tmp_path / "run", lives=8):
        if isinstance(event, Scored):
            alive[event.id] = event.score
        if isinstance(event, Retired):
            alive.pop(event.id)
            best.append(max(alive.values()))
    assert best == sorted(best)
    assert best[-1] > best[0]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"elite": 6}, r"strategy\.elite: expected less than .* got 6"),
        ({"targets": [0, 9]}, r"strategy\.targets: expected numbers below 4, got 9"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(strategy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(**strategy))


def test_modules_that_are_not_adapted_stay_as_the_host_has_them(tmp_path: Path) -> None:
    """On the toy, whose only module no name of attention fits: nothing is learned."""
    lived(tmp_path / "run", lives=1, targets=[1])
    state, store = load_state(tmp_path / "run"), BlobStore(tmp_path / "run" / "blobs")
    assert state.population
    for one in state.population.values():
        assert not np.any(store.weights(one.genome.weights).delta("policy"))


def test_the_best_so_far_is_alive_with_the_weights_that_sat_its_exam(tmp_path: Path) -> None:
    scores, learned, retired = dict[str, float](), dict[str, str](), set[str]()
    bests = set[str]()
    for event in lived(tmp_path / "run", lives=8):
        if isinstance(event, Scored):
            scores[event.id] = event.score
        if isinstance(event, Learned):
            assert event.id not in scores
            learned[event.id] = event.weights
        if isinstance(event, Retired):
            retired.add(event.id)
            bests.add(best := max(scores, key=lambda name: scores[name]))
            assert best not in retired
    assert len(bests) > 1
    final = load_state(tmp_path / "run").population[best]
    assert final.genome.weights == learned[best]
    assert BlobStore(tmp_path / "run" / "blobs").weights(learned[best]).rank > 0


def test_no_held_out_question_is_learned_or_examined(tmp_path: Path) -> None:
    asked = {item for e in lived(tmp_path / "run") if isinstance(e, Acted) for item in e.items}
    held_out = draw_shifts(mixture(config()), ["in-distribution"], 200)
    assert asked
    assert not asked & {item.id for item in held_out}


def test_nothing_is_learned_from_an_exam_nor_remembered_of_it(tmp_path: Path) -> None:
    rule = {"kind": "supervised", "replay": 0.5}
    plan = config(lives=1).model_copy(update={"learning_rule": rule})
    shorter = plan.model_copy(update={"run": plan.run.model_copy(update={"generations": STEPS})})
    memories = [
        start(one, tmp_path / str(one.run.generations), host=ToyHost()).state.memory
        for one in (shorter, plan)
    ]
    assert memories[0]
    assert memories[1] == memories[0]
    events = read_events(tmp_path / str(STEPS + 1) / "events.jsonl")
    taught = {one.generation for one in events if isinstance(one, Learned) and one.lessons}
    assert taught == set(range(STEPS))
