"""A genetic algorithm over weights: exams, elites, children, and learning in between."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exams import FAMILIES, flipping, variants_in_exams
from runs import start
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Born, Event, Learned, Quarantined, Retired, Scored
from symbiont_ecology.ecology.state import load_state
from symbiont_ecology.extensions.methods.genetic import SIGMA
from symbiont_ecology.run.build import check
from toy import ToyHost, toy_config

GA = {
    "kind": "genetic",
    "questions": 6,
    "mutation": {"kind": "gaussian", "sigma": 0.5},
    "b_std": 0.3,
}


def lived(folder: Path, generations: int = 30, rule: Any = "none", **strategy: Any) -> list[Event]:
    config = toy_config(generations=generations, strategy={**GA, **strategy}, learning_rule=rule)
    start(config, folder, host=ToyHost())
    return list(read_events(folder / "events.jsonl"))


def exams(events: list[Event]) -> dict[str, set[int]]:
    """Who sat an exam, and in which generations."""
    sat: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, Acted) and event.purpose == "practice":
            sat[event.id].add(event.generation)
    return sat


@pytest.mark.parametrize("crossover", ["directions", "elementwise", "svd"])
def test_the_best_score_never_falls_and_rises(crossover: str, tmp_path: Path) -> None:
    events = lived(tmp_path / "run", population=12, elite=3, crossover=crossover)
    best, scores = list[float](), dict[str, float]()
    for event in events:
        if isinstance(event, Scored):
            scores[event.id] = event.score
            while len(best) <= event.generation:
                best.append(best[-1] if best else 0.0)
            best[event.generation] = max(best[event.generation], event.score)
    assert best == sorted(best)
    assert best[-1] > best[0] + 0.15


def test_no_elite_sits_an_exam_twice(tmp_path: Path) -> None:
    sat = exams(lived(tmp_path / "run"))
    assert len(sat) > 60
    assert all(len(generations) == 1 for generations in sat.values())


def test_everyone_sits_the_exam_again_when_the_world_changes(tmp_path: Path) -> None:
    config = toy_config(generations=12, families=FAMILIES, strategy=GA, learning_rule="none")
    start(flipping(tmp_path, config), tmp_path / "run", host=ToyHost())
    calm, changed = (variants_in_exams(load_state(tmp_path / name)) for name in ("calm", "run"))
    assert len(calm) == len(changed) == 2
    assert calm[0] == calm[1] != changed[0] == changed[1]
    sat = exams(list(read_events(tmp_path / "run/events.jsonl")))
    assert sum(len(generations) == 2 for generations in sat.values()) == 2  # the elite


def test_a_quarantined_best_takes_no_score_of_others_with_it(tmp_path: Path) -> None:
    """It practises in generation 2, in the first call of learning, and meets a NaN there."""
    strategy = {**GA, "refine": 3, "samples": 2}
    config = toy_config(generations=3, strategy=strategy, learning_rule="policy_gradient")
    start(config, tmp_path / "run", host=ToyHost(poison={0: 0}))
    events = list(read_events(tmp_path / "run/events.jsonl"))
    (gone,) = [event.id for event in events if isinstance(event, Quarantined)]
    earned = {event.id: event.score for event in events if isinstance(event, Scored)}
    living = load_state(tmp_path / "run").population
    kept = {name: one.score for name, one in living.items() if name in earned}
    assert gone not in living
    assert kept
    assert kept == {name: earned[name] for name in kept}


def test_an_exam_is_the_same_in_every_generation(tmp_path: Path) -> None:
    asked = defaultdict(set)
    for event in lived(tmp_path / "run", generations=5):
        if isinstance(event, Acted) and event.purpose == "practice":
            asked[event.cell].add(event.items)
    assert all(len(items) == 1 for items in asked.values())


def test_the_elite_stays_and_the_others_make_room(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", generations=4)
    state = load_state(tmp_path / "run")
    assert len(state.population) == 6
    retired = [event for event in events if isinstance(event, Retired)]
    assert {event.cause for event in retired} == {"eliminated"}
    assert len(retired) == 16
    born = [event for event in events if isinstance(event, Born) and event.parents]
    assert len(born) == 16
    assert all(len(set(event.parents)) == 2 for event in born)  # crossover does happen


def test_nothing_is_learned_from_an_exam(tmp_path: Path) -> None:
    rule = "policy_gradient"
    learned = [e for e in lived(tmp_path / "run", rule=rule) if isinstance(e, Learned)]
    assert not learned


def test_the_best_learns_now_and_then_and_sits_the_exam_again(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", 12, "policy_gradient", refine=3, samples=2, learning_rate=0.1)
    learned = [event for event in events if isinstance(event, Learned) and event.lessons]
    assert {event.generation for event in learned} == {2, 5, 8, 11}
    scores = {(e.generation, e.id): e.score for e in events if isinstance(e, Scored)}
    for event in learned[:-1]:
        assert (event.generation + 1, event.id) in scores


def test_how_much_a_child_mutates_is_inherited(tmp_path: Path) -> None:
    events = lived(tmp_path / "run", 12, is_adaptive=True)
    sigmas = [event.traits[SIGMA] for event in events if isinstance(event, Born)]
    assert len(set(sigmas)) == len(sigmas)
    assert 0.05 < np.median(sigmas) < 5


def test_the_newborn_have_no_score_yet(tmp_path: Path) -> None:
    start(toy_config(generations=3, strategy=GA, learning_rule="none"), tmp_path, host=ToyHost())
    scores = [one.score for one in load_state(tmp_path).population.values()]
    assert [score is not None for score in scores] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"elite": 6}, r"strategy\.elite: expected less than strategy\.population \(6\).* got 6"),
        ({"refine": 1}, r"strategy\.refine: 1 leaves no generation"),
        ({"crossover": "clone"}, r"expected an operator of 2 parents"),
        ({"mutation": "svd"}, r"expected an operator of 1 parent "),
        ({"is_adaptive": True, "mutation": "clone"}, r"expected a mutation with a sigma"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(strategy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(toy_config(strategy={**GA, **strategy}, learning_rule="none"))
