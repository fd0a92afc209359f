"""Foraging, decision by decision: where habitats settle, who takes a question, who is born."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foragers import FAMILIES, answered, organelle, state_of
from symbiont_ecology.ecology import Assignment, Awaken, Colonise, Decision, Found, Outcome, Settle
from symbiont_ecology.ecology.diets import FAINT, LIKENESS, Diet, diet_of, taste_of
from symbiont_ecology.ecology.habitats import SHARED, SURE, Habitat
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.rng import Draw
from symbiont_ecology.strategies import StrategyContext
from symbiont_ecology.strategies.mechanisms import Room
from symbiont_ecology.strategies.mechanisms.foraging import NOBODY, SWEEPS, Foraging, Settlement
from symbiont_ecology.types import Item

TRAITS = {"learning_rate": 0.1}

# Settlement: any history of moves and unions.

NAMES = ("o1", "o2", "o3", "o4")
answers = st.builds(
    answered,
    st.sampled_from(NAMES),
    st.integers(0, 3),
    accepted=st.booleans(),
    family=st.sampled_from(FAMILIES),
    confidence=st.sampled_from((0.3, 0.9, 0.99)),
)
places = st.builds(
    lambda chosen, given: Habitat(chosen, answers=tuple(given)),
    st.sampled_from((*NAMES, "dead", "")),
    st.lists(answers, max_size=7),
)
worlds = st.builds(
    lambda habitats, memories, dreams: state_of(
        [organelle(name, *(memories if name == "o2" else ())) for name in NAMES[:3]],
        [organelle("o4", *dreams)] if dreams else [],
        **{f"h{number}": habitat for number, habitat in enumerate(habitats)},
    ),
    st.lists(places, min_size=1, max_size=6),
    st.lists(answers, max_size=3),
    st.lists(answers, max_size=3),
)


def books_are_right(settlement: Settlement) -> None:
    """All that a settlement keeps count of is what follows from who lives where."""
    servers, state = settlement.servers, settlement.state
    fed = {name for name in servers if state.habitats[name].accepted}
    assert +settlement.tenants == Counter(servers.values())
    assert +settlement.sizes == Counter(servers[name] for name in fed)
    assert set(settlement.eaten) == {*servers.values(), *settlement.past}
    for server, eaten in settlement.eaten.items():
        parts = [settlement.diets[name] for name in servers if servers[name] == server]
        parts += [settlement.past[server]] if server in settlement.past else []
        expected = reduce(add, parts)
        assert eaten.sums == pytest.approx(expected.sums, abs=1e-9)
        assert eaten.counts == pytest.approx(expected.counts, abs=1e-9)
    by_server = settlement.by_server()
    assert {name: server for server, names in by_server.items() for name in names} == servers
    assert all(by_server.values())


@settings(max_examples=60)
@given(worlds, st.lists(st.integers(0, 6), max_size=8))
def test_a_settlement_keeps_its_books_through_any_history(
    state: EcologyState, history: list[int]
) -> None:
    settlement = Settlement.of(state, FAMILIES, loyalty=2.0)
    known = {name for name, habitat in state.habitats.items() if habitat.answers}
    assert set(settlement.tastes) == set(settlement.diets) == known
    assert settlement.servers == {
        name: state.habitats[name].chosen
        for name in settlement.tastes
        if state.habitats[name].chosen in state.population
    }
    books_are_right(settlement)
    for step in history:
        if step == 6 or f"h{step}" not in known:
            settlement.merge()
        else:
            expected = best_for(f"h{step}", settlement)
            settlement.move(f"h{step}")
            assert settlement.servers[f"h{step}"] == expected
        books_are_right(settlement)


def best_for(name: str, settlement: Settlement) -> str:
    """Where a habitat is explained best, straight from what is said of it."""
    state, habitat = settlement.state, settlement.state.habitats[name]
    before = settlement.servers.get(name)
    rest = {other: server for other, server in settlement.servers.items() if other != name}
    sizes = Counter(server for other, server in rest.items() if state.habitats[other].accepted)
    scores: dict[str, float] = {}
    for server in settlement.eaten:
        if sizes[server] or server in settlement.past:
            eaten = [settlement.diets[other] for other in rest if rest[other] == server]
            eaten += [settlement.past[server]] if server in settlement.past else []
            agreement = LIKENESS.agreement(reduce(add, eaten), settlement.tastes[name])
            size = math.log(max(sizes[server], 1) * state.record(server, but_for=name))
            scores[server] = agreement + habitat.trust(server, SHARED) + size
    if before is not None:
        alone = min(habitat.trust(before, SHARED) + SURE, 0.0)
        alone += math.log(state.record(before, but_for=name))
        loyalty = settlement.loyalty if habitat.accepted else 0.0
        scores[before] = scores.get(before, alone) + loyalty
    nobody = math.log(0.5)
    best = max(scores, key=scores.__getitem__, default="")
    is_colony = not best or scores[best] < nobody
    return f"colony {settlement.colonies + 1}" if is_colony else best


def test_a_settlement_knows_how_alike_answers_are_and_how_often_kinds_agree() -> None:
    state = state_of([])
    known = Settlement.of(state, FAMILIES, 3.0)
    assert (known.likeness, known.shared, known.loyalty) == (LIKENESS, SHARED, 3.0)
    state.common = {"math.add": "x"}
    alone = Settlement.of(state, FAMILIES[:1], 3.0)
    assert (alone.likeness, alone.shared) == (FAINT, 0.0)


def test_memories_of_the_living_and_the_dormant_are_eaten_from_the_start() -> None:
    memory = answered("o9", 1)
    state = state_of([organelle("o1"), organelle("o2", memory)], [organelle("o3", memory)])
    settlement = Settlement.of(state, FAMILIES, 2.0)
    assert list(settlement.past) == list(settlement.eaten) == ["o2", "o3"]
    assert (settlement.past["o2"].counts == diet_of([memory], FAMILIES).counts).all()


# May a colony be founded?


def fed(count: int, refused: int = 0, server: str = "o1") -> Habitat:
    eaten = [answered(server, 0)] * count
    return Habitat(server, answers=(*eaten, *[answered(server, 1, accepted=False)] * refused))


def test_a_colony_needs_two_accepted_answers_among_its_habitats() -> None:
    state = state_of([organelle("o1")], one=fed(1), other=fed(1, 3), none=fed(0, 3))
    settlement = Settlement.of(state, FAMILIES, 2.0)
    assert settlement.may_found("one", "other")
    assert not settlement.may_found("one", "none")
    assert not settlement.may_found("none")


@pytest.mark.parametrize(("tried", "may"), [(("o1", "o2"), True), (("o1",), False)])
def test_without_food_somebody_is_born_after_ten_answers_of_all_who_please_others(
    tried: tuple[str, ...], may: bool
) -> None:
    def hungry(count: int) -> Habitat:
        answers = [answered(tried[n % len(tried)], 1, accepted=False) for n in range(count)]
        return Habitat("o3", answers=tuple(answers))

    living = [organelle(name) for name in NAMES]
    others = {"first": fed(3, server="o1"), "second": fed(3, server="o2"), "sad": fed(0, 2, "o4")}
    for count in (9, 10):
        state = state_of(living, **others, hungry=hungry(count), fresh=fed(0, 1))
        settlement = Settlement.of(state, FAMILIES, 2.0)
        assert settlement.may_found("hungry") == (may and count == 10)
        assert settlement.may_found("fresh", "hungry") == (may and count == 10)


# Unions.


def test_of_two_that_eat_the_same_the_living_one_is_kept_then_who_ate_more() -> None:
    state = state_of(
        [organelle("o1"), organelle("o2")], small=fed(6, server="o1"), large=fed(8, server="o2")
    )
    settlement = Settlement.of(state, FAMILIES[:1], 2.0)
    settlement.merge()
    assert settlement.servers == {"small": "o2", "large": "o2"}
    books_are_right(settlement)
    dormant = organelle("o4", *[answered("o9", 0)] * 12)
    large = Habitat("gone", answers=fed(8, server="o9").answers)
    state = state_of([organelle("o1")], [dormant], small=fed(3, server="o1"), large=large)
    settlement = Settlement.of(state, FAMILIES[:1], 2.0)
    settlement.move("large")
    assert settlement.servers["large"] == "o4"
    settlement.merge()
    assert settlement.servers == {"small": "o1", "large": "o1"}
    books_are_right(settlement)


def test_who_left_its_habitats_to_another_still_remembers() -> None:
    memory = answered("o9", 2)
    state = state_of(
        [organelle("o1", memory), organelle("o2")], one=fed(6, server="o1"), two=fed(9, server="o2")
    )
    settlement = Settlement.of(state, FAMILIES[:1], 2.0)
    settlement.merge()
    assert settlement.servers == {"one": "o2", "two": "o2"}
    assert set(settlement.eaten) == {"o1", "o2"}
    books_are_right(settlement)


def test_two_become_one_only_where_that_explains_more_than_loyalty() -> None:
    state = state_of(
        [organelle("o1"), organelle("o2")], one=fed(6, server="o1"), two=fed(6, server="o2")
    )
    tastes = [taste_of(state.habitats[name].answers, FAMILIES[:1]) for name in ("one", "two")]
    gain = LIKENESS.agreement(*tastes) + math.lgamma(2) - 2 * math.lgamma(1)
    for loyalty, servers in ((gain - 0.01, 1), (gain, 2), (gain + 0.01, 2)):
        settlement = Settlement.of(state, FAMILIES[:1], loyalty)
        settlement.merge()
        assert len(set(settlement.servers.values())) == servers


# Decisions, in a world of its own.


@dataclass(frozen=True)
class Kind:
    """A family, as far as foraging asks."""

    is_open: bool = False


@dataclass(frozen=True)
class Tasks:
    """Families, as far as foraging asks."""

    families: Mapping[str, Kind] = field(default_factory=lambda: dict.fromkeys(FAMILIES, Kind()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.families)


def context_of(state: EcologyState, *asked: str, **tasks: Any) -> StrategyContext:
    outcomes = [
        Outcome(Assignment("o1", (question(name),), purpose=purpose), ())  # type: ignore[arg-type]
        for name, purpose in (word.split(":") for word in asked)
    ]
    prices: Any = None
    return StrategyContext(
        state,
        Tasks(**tasks),  # type: ignore[arg-type]
        prices,
        prices,
        4,
        draw=Draw(3, state.generation),
        outcomes=outcomes,
    )


def question(habitat: str, family: str = FAMILIES[0]) -> Item:
    return Item("", family, "short", "", "1+1", 4, verifier=str, habitat=habitat)


OPEN = {"families": dict.fromkeys(FAMILIES, Kind(is_open=True))}
TWO = [organelle("o1"), organelle("o2"), organelle("o3")]


def test_a_settled_habitat_that_accepts_asks_its_server() -> None:
    state = state_of(TWO, home=fed(1, server="o2"), other=fed(8, server="o1"))
    for earlier in range(3):
        for tasks in ({}, OPEN):
            taker = Foraging().taker(question("home"), context_of(state, **tasks), earlier)
            assert taker == "o2"


def test_nobody_is_sent_to_a_new_habitat_while_nobody_pleases_anybody() -> None:
    state = state_of(TWO, sad=fed(0, 3, "o1"), ghost=fed(5, server="gone"))
    context = context_of(state)
    assert Foraging().taker(question("new"), context) is None
    assert Foraging().taker(question("sad"), context) == "o1"
    open_ = context_of(state, **OPEN)
    assert Foraging().taker(question("sad"), open_) == "o1"
    assert Foraging().taker(question("sad"), open_, 1) is None


def promises(name: str, state: EcologyState) -> list[str]:
    """Everybody by what it promises to a habitat, the best first."""
    habitat = state.habitats.get(name, Habitat())
    pleased = Counter(one.chosen for one in state.habitats.values() if one.accepted)

    def promise(who: str) -> float:
        size = max(pleased[who], 1) * state.record(who, but_for=name)
        return habitat.trust(who, SHARED) + math.log(size)

    return sorted(state.population, key=promise, reverse=True)


def test_a_new_habitat_asks_who_most_likely_pleases_it() -> None:
    tried = Habitat("gone", answers=(answered("o1", 0, accepted=False, confidence=0.99),) * 2)
    homes = {"a": fed(4, 4, "o1"), "b": fed(3, server="o1"), "c": fed(2, 9, "o2")}
    state = state_of(TWO, **homes, tried=tried)
    assert promises("new", state)[0] == "o1"
    assert promises("tried", state)[0] != "o1"
    for name in ("new", "tried"):
        for tasks in ({}, OPEN):
            context = context_of(state, **tasks)
            order = promises(name, state)
            found = [Foraging().taker(question(name), context, earlier) for earlier in range(5)]
            expected = [order[n % 3] for n in range(5)] if tasks else [order[0]] * 5
            assert found == expected


def test_where_replies_are_open_further_questions_go_to_others_too() -> None:
    homes = {"a": fed(4, server="o1"), "b": fed(2, 9, "o2"), "sad": fed(0, 2, "o3")}
    state = state_of(TWO, **homes)
    order = ["o3", *(name for name in promises("sad", state) if name != "o3")]
    takers = [
        [
            Foraging().taker(question("sad"), context_of(state, **tasks), earlier)
            for earlier in range(4)
        ]
        for tasks in (OPEN, {})
    ]
    assert takers == [[*order, "o3"], ["o3"] * 4]


# Founding.


def test_founders_divide_the_examples_one_kind_each() -> None:
    examples = [replace(answered("", place % 3), prompt=str(place)) for place in range(20)]
    examples.append(replace(answered("", 3), prompt="alone"))
    state = replace(state_of([]), examples=tuple(examples))
    one = {"families": {FAMILIES[0]: Kind()}}
    context = context_of(state, **one)
    found = Foraging(meals=7).found(context, Room(9, 40, TRAITS))
    groups = [[place for place in range(20) if place % 3 == kind] for kind in range(3)]
    assert found == [
        Found(TRAITS, 4, memories=tuple(examples[place] for place in group), meals=7)
        for group in groups
    ]
    assert all(isinstance(one, Found) and one.traits is not TRAITS for one in found)
    assert len(Foraging().found(context, Room(2, 40, TRAITS))) == 2
    assert Foraging(examples=False).found(context, Room(9, 40, TRAITS)) == []
    assert Foraging().found(context_of(state), Room(9, 40, TRAITS)) == []
    two = replace(state, examples=tuple(examples[place] for place in (0, 3)))
    assert len(Foraging().found(context_of(two, **one), Room(9, 40, TRAITS))) == 1


def test_memory_is_a_knob() -> None:
    assert Foraging().keeps_memories
    assert not Foraging(memory=False).keeps_memories


# Telling.


def decided(state: EcologyState, asked: Sequence[str], places: int = 9) -> list[Decision]:
    context = context_of(state, *asked)
    return Foraging(meals=3).tell(context, Room(places, 40, TRAITS))


def expected(state: EcologyState, names: Sequence[str], places: int = 9) -> list[Decision]:
    """What follows where these habitats look around."""
    settlement = Settlement.of(state, FAMILIES, 2.0)
    generator = Draw(3, state.generation)("forage")
    for _ in range(SWEEPS):
        for place in generator.permutation(len(names)):
            settlement.move(names[place])
    settlement.merge()
    moved: dict[str, str] = {}
    born = list[Decision]()
    for server, homes in settlement.by_server().items():
        if server in state.population:
            moved |= {home: server for home in homes if state.habitats[home].chosen != server}
        elif server in state.dormant or settlement.may_found(*homes):
            if len(born) < places:
                is_dormant = server in state.dormant
                one = Awaken(tuple(homes), server) if is_dormant else None
                born.append(one or Colonise(tuple(homes), TRAITS, 4, 3))
        else:
            moved |= {home: NOBODY for home in homes if state.habitats[home].chosen != NOBODY}
    return [*([Settle(moved)] if moved else []), *born]


@settings(max_examples=60)
@given(worlds, st.integers(0, 9), st.sets(st.integers(0, 5)), st.integers(0, 3))
def test_who_has_news_or_no_server_looks_around_and_every_fifth_generation_everyone(
    state: EcologyState, generation: int, asked: set[int], places: int
) -> None:
    state.generation = generation
    known = [name for name, habitat in state.habitats.items() if habitat.answers]
    homeless = {name for name in known if state.habitats[name].chosen not in state.population}
    heard = {f"h{number}" for number in asked}
    news = [name for name in known if generation % 5 == 4 or name in heard | homeless]
    words = [f"h{number}:practice" for number in sorted(asked)] + ["h0:probation"]
    assert decided(state, words, places) == expected(state, news, places)


def test_a_colony_is_founded_for_habitats_that_nobody_explains_while_there_is_room() -> None:
    hungry = Habitat("", answers=(answered("gone", 1),) * 4)
    state = state_of([organelle("o1")], home=fed(8), hungry=hungry)
    born = Colonise(("hungry",), TRAITS, 4, 3)
    assert decided(state, []) == [born]
    assert decided(state, [], places=0) == []
    dreamer = organelle("o4", *[answered("o9", 1)] * 8)
    state.dormant = {"o4": dreamer}
    assert decided(state, []) == [Awaken(("hungry",), "o4")]
    state.population["o4"] = dreamer
    assert decided(state, []) == [Settle({"hungry": "o4"})]


def test_a_habitat_without_food_is_let_go() -> None:
    state = state_of([organelle("o1")], home=fed(8), sad=Habitat("gone", answers=fed(0, 3).answers))
    assert decided(state, []) == [Settle({"sad": NOBODY})]
    state.habitats["sad"] = replace(state.habitats["sad"], chosen=NOBODY)
    assert decided(state, []) == []


def test_diets_of_nothing_have_no_weight() -> None:
    assert Diet(np.zeros((2, 1)), np.zeros(2)).is_empty
