"""What a log says of evolution strategies and of selection by exams."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from seen import METHODS, method_plan
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import (
    Acted,
    Ascended,
    Born,
    Event,
    GenerationEnded,
    Retired,
    Scored,
)
from symbiont_ecology.extensions.evoscope.history import History
from symbiont_ecology.extensions.evoscope.methods import lives_of, look_rows, step_rows, variants_of
from symbiont_ecology.extensions.evoscope.page import page_record


def ended(generation: int) -> GenerationEnded:
    return GenerationEnded(generation, 1, 0, 0, 1.0, 1, 1, 0, 1, 1)


def told(*events: Event) -> History:
    """A history of a few events, without an economy."""
    return History.of(method_plan("genetic"), events)


def born(generation: int, name: str, *parents: str, **genes: float) -> Born:
    operator = "mutation" if len(parents) == 1 else "crossover" if parents else "founder"
    return Born(generation, name, operator, parents, f"weights of {name}", genes)


def two_lives() -> History:
    """o1 stays, o2 leaves; of the children o3 is better and o4 worse, and o1 leaves."""
    return told(
        born(0, "o1", rank=1.0, rate=0.1),
        born(0, "o2", rank=2.0, rate=0.1),
        Acted(0, "o1", "a/b", ("x", "y"), (1.0, 0.0), 1, 1, 1, 1, "practice"),
        Scored(0, "o1", 0.5),
        Scored(0, "o2", 0.25),
        Retired(0, "o2", "eliminated", 1, 0),
        born(0, "o3", "o1", rank=4.0, rate=0.2),
        born(0, "o4", "o1", "o2", rank=4.0, rate=0.1),
        ended(0),
        Scored(1, "o3", 0.75),
        Scored(1, "o4", 0.375),
        Retired(1, "o1", "eliminated", 2, 0),
        Retired(1, "o4", "eliminated", 1, 0),
        ended(1),
    )


def test_a_step_is_told_with_its_mean_its_band_and_its_best() -> None:
    rewards = tuple(float(number) for number in range(11))
    ascent = Ascended(0, "o1", rewards, 7.0, 0.25, 0.1, "w", noise=0.02)
    (step,) = step_rows(told(born(0, "o1"), ascent, ended(0)))
    band = {"mean": 5, "low": 2, "high": 8, "best": 10}
    assert step == {**band, "generation": 0, "tokens": 7, "empty": 0.25, "step": 0.1, "noise": 0.02}


def test_steps_and_looks_are_those_of_the_log(methods: dict[str, Path]) -> None:
    history = History.of_run(methods["es"])
    events = list(read_events(methods["es"] / "events.jsonl"))
    rewards = [event.rewards for event in events if isinstance(event, Ascended)]
    assert [one["mean"] for one in step_rows(history)] == pytest.approx([*map(np.mean, rewards)])
    looks = look_rows(history)
    assert [one["generation"] for one in looks] == [0, 4, 8, 12]
    assert len({one["host"] for one in looks}) == 1  # the same questions, and it never changes
    assert history.is_alone
    assert not history.has_exams
    for name in ("genetic", "hyper"):
        assert not look_rows(History.of_run(methods[name]))


def test_the_ends_of_lives_rank_everybody_alive_and_say_who_stays() -> None:
    first, second = lives_of(two_lives())
    assert [one.id for one in first.ranking] == ["o1", "o2"]
    assert [one.id for one in second.ranking] == ["o3", "o1", "o4"]
    assert (first.survivors, second.survivors) == ({"o1"}, {"o3"})
    assert (first.generation, second.generation) == (0, 1)
    assert first.ranking[0].accuracy == 0.5
    assert np.isnan(second.ranking[0].accuracy)  # nobody asked it


@pytest.mark.parametrize("name", ["genetic", "hyper"])
def test_everybody_who_sat_an_exam_is_in_a_life(methods: dict[str, Path], name: str) -> None:
    history = History.of_run(methods[name])
    lives = lives_of(history)
    events = read_events(methods[name] / "events.jsonl")
    scores = {event.id: event.score for event in events if isinstance(event, Scored)}
    assert {who: one.fitness for who, one in variants_of(lives).items()} == scores
    assert all(len(life.survivors) == 2 for life in lives)
    best = [life.ranking[0].fitness for life in lives]
    assert all(one <= other for one, other in pairwise(best))  # the elite stays


def test_a_page_has_a_row_for_each_step_and_exam_and_a_long_one_has_means(
    methods: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = page_record([methods["es"]])["runs"]
    assert [one["generation"] for one in record["ascents"]] == list(range(16))
    assert {one["noise"] for one in record["ascents"]} == {METHODS["es"]["noise"]}
    assert record["lives"] == []
    monkeypatch.setattr("symbiont_ecology.extensions.evoscope.record.MAX_FRAMES", 4)
    (coarse,) = page_record([methods["es"]])["runs"]
    assert [one["generation"] for one in coarse["ascents"]] == [3, 7, 11, 15]
    first = record["ascents"][:4]
    assert coarse["ascents"][0]["mean"] == pytest.approx(np.mean([one["mean"] for one in first]))
    assert coarse["ascents"][0]["best"] == max(one["best"] for one in first)
