"""Specialists, activity and novelty, on logs that were made up so that the truth is
known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from life_measures import (
    Course,
    activity,
    course_of,
    effective_specialists,
    potentials,
    read_history,
    specialists,
)
from symbiont_ecology.base.events import Acted, Born, Event, Retired, Settled

GROUPS = {
    "math.add/short": "number",
    "logic.bool/short": "truth",
    "json.repair/short": "json.repair",
}
ADD, BOOL, JSON = GROUPS
Diet = Mapping[str, tuple[int, int]]
"""Of a generation: cells with rollouts asked and right."""


@dataclass
class Log:
    """A run made up for a test: who is born of whom, dies, and eats what."""

    events: list[Event] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    generation: int = 0

    def born(self, organelle_id: str, *parents: str, weights: str = "") -> None:
        """Comes after the generation that was lived last."""
        at = max(self.generation - 1, 0)
        operator = "gaussian" if parents else "founder"
        held = weights or f"weights of {organelle_id}"
        self.events.append(Born(at, organelle_id, operator, parents, held, {}))
        self.alive.append(organelle_id)

    def dies(self, organelle_id: str) -> None:
        """Before the next generation."""
        self.events.append(Retired(self.generation, organelle_id, "bankrupt", 0, 0))
        self.alive.remove(organelle_id)

    def lives(self, diet: Callable[[str, int], Diet], generations: int = 1) -> None:
        """Everyone alive eats, for so many generations."""
        for _ in range(generations):
            for organelle_id in self.alive:
                for cell, (asked, right) in diet(organelle_id, self.generation).items():
                    rewards = (1.0,) * right + (0.0,) * (asked - right)
                    items = tuple(str(number) for number in range(asked))
                    who = self.generation, organelle_id, cell
                    self.events.append(Acted(*who, items, rewards, 1, 1, 1, 1, "practice"))
            for organelle_id in self.alive:
                self.events.append(Settled(self.generation, organelle_id, 1, 0, 0, 0, 0))
            self.generation += 1


def by_name(organelle_id: str, generation: int) -> Diet:
    """o1 adds, o2 judges, o3 mends, o4 does a little of everything, o5 fails."""
    every = dict.fromkeys(GROUPS, (2, 2))
    return {
        "o1": {ADD: (4, 3)},
        "o2": {BOOL: (4, 4)},
        "o3": {JSON: (4, 3), ADD: (1, 1)},
        "o4": every,
    }.get(organelle_id, {ADD: (9, 2)})


@pytest.fixture
def five() -> Log:
    log = Log()
    for number in range(1, 6):
        log.born(f"o{number}")
    log.lives(by_name, 10)
    return log


def test_specialists_are_those_who_earn_most_in_one_group_and_are_right_there(five: Log) -> None:
    history = read_history(five.events)
    assert specialists(history, 10, 10) == {"o1": "number", "o2": "truth", "o3": "json.repair"}


@given(st.integers(1, 6), st.integers(1, 4))
def test_as_many_effective_specialists_as_trades_however_many_share_one(
    trades: int, copies: int
) -> None:
    earned = {
        f"{trade}.{copy}": Counter({str(trade): 10_000})
        for trade in range(trades)
        for copy in range(copies)
    }
    assert effective_specialists(earned) == pytest.approx(trades, rel=0.01)


def test_generalists_are_one_effective_specialist_though_samples_are_small() -> None:
    generator = np.random.default_rng(0)
    found = []
    for _ in range(200):
        counts = generator.multinomial(60, np.full(7, 1 / 7), size=12)
        earned = {
            str(organelle_id): Counter(dict(zip("abcdefg", row, strict=True)))
            for organelle_id, row in enumerate(counts)
        }
        found.append(effective_specialists(earned))
    assert np.mean(found) == pytest.approx(1, abs=0.02)
    assert math.isnan(effective_specialists({"o1": Counter()}))


def test_a_counter_is_the_use_along_the_line_of_descent() -> None:
    log = Log()
    log.born("o1")
    log.born("o2")
    log.lives(lambda organelle_id, _: {ADD: (5, 5 if organelle_id == "o1" else 1)}, 3)
    log.born("o3", "o1")  # 15 inherited
    log.born("o4", "o1", "o2")  # a merge: the mean of 15 and 3
    log.dies("o1")
    log.lives(lambda *_: {ADD: (2, 2)})
    log.born("o5", weights="weights of o1")  # refounded from the dead
    log.lives(lambda *_: {ADD: (1, 1)})
    counters = course_of(read_history(log.events)).counters()
    assert counters[2] == {"o1": 15, "o2": 3}
    assert counters[3] == {"o2": 5, "o3": 17, "o4": 11}
    assert counters[4] == {"o2": 6, "o3": 18, "o4": 12, "o5": 16}


def course(seed: int, is_selected: bool, generations: int = 100, size: int = 12) -> Course:
    """Births and deaths in every fifth generation; those who are used more have the children, or
    anyone."""
    generator, log = np.random.default_rng(seed), Log()
    talent = {f"o{number}": int(generator.integers(0, 10)) for number in range(1, size + 1)}
    for organelle_id in talent:
        log.born(organelle_id)
    for step in range(generations // 5):
        if is_selected:
            log.lives(lambda organelle_id, _: {ADD: (10, talent[organelle_id])}, 5)
        else:
            log.lives(lambda *_: {ADD: (10, int(generator.integers(0, 10)))}, 5)
        ranked = list(log.alive)
        if is_selected:
            ranked.sort(key=talent.__getitem__)
        else:
            generator.shuffle(ranked)
        child = f"o{size + step + 1}"
        talent[child] = talent[ranked[-1]]
        log.born(child, ranked[-1])
        log.dies(ranked[0])
    return course_of(read_history(log.events))


def test_selection_lifts_activity_above_the_neutral_shadow_and_drift_does_not() -> None:
    drawn = np.random.default_rng(1)
    above = []
    for seed in range(8):
        found = activity(course(seed, is_selected=False), drawn)
        above.append(found.mean[-1] > found.high[-1])
    assert sum(above) <= 2  # 0.2 of 8 expected
    for seed in range(2):
        found = activity(course(seed, is_selected=True), drawn)
        assert found.mean[-1] > found.high[-1]
        assert found.low[-1] < found.shadow[-1] < found.high[-1]


def novelties(log: Log, interval: int) -> Iterator[tuple[int, int, float]]:
    for one in potentials(read_history(log.events), interval):
        yield one.change, one.novelty, round(one.diversity, 3)


def test_an_ancestor_counts_while_its_descendants_live() -> None:
    log = Log()
    log.born("o1")
    log.born("o2")
    log.lives(by_name, 10)
    log.born("o3", "o2")
    log.dies("o2")
    log.lives(by_name, 20)
    assert list(novelties(log, 10)) == [(2, 2, 0.693), (1, 1, 0.693)]


def test_a_kind_that_comes_back_is_a_change_but_no_novelty() -> None:
    log = Log()
    log.born("o1")
    seasons: Sequence[str] = (ADD, BOOL, ADD, ADD)
    for cell in seasons:
        log.lives(lambda *_, cell=cell: {cell: (3, 3)}, 10)
    assert list(novelties(log, 10)) == [(1, 1, 0.0), (1, 1, 0.0), (1, 0, 0.0)]
