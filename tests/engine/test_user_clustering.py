"""UserClustering, decision by decision: who takes a question, who moves, who is born."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from foragers import FAMILIES, answered, drawn_world, fed, organelle, state_of, worlds
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import Item, judged_elsewhere
from symbiont_ecology.ecology import Assignment, Awaken, Decision, Found, Outcome, Serve
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Room
from symbiont_ecology.ecology.strategies.mechanisms.user_clustering import (
    SWEEPS,
    ClusterAssignment,
    UserClustering,
)
from symbiont_ecology.ecology.users import NOBODY, SHARED, SketchSpace, User

TRAITS = {"learning_rate": 0.1}


def coloniser(users: tuple[str, ...]) -> Found:
    """The founding of an adapter for some users."""
    return Found(TRAITS, 4, operator="coloniser", users=users, initial_steps=3)


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
    draw, world = Draw(3, state.generation), Tasks(**tasks)
    return StrategyContext(state, world, prices, prices, 4, draw=draw, outcomes=outcomes)  # type: ignore[arg-type]


def question(user: str, family: str = FAMILIES[0]) -> Item:
    return Item("", family, "short", "", "1+1", 4, verifier=str, user=user)


OPEN = {"families": dict.fromkeys(FAMILIES, Kind(is_open=True))}
TWO = [organelle("o1"), organelle("o2"), organelle("o3")]


def test_a_settled_user_that_accepts_asks_its_server() -> None:
    state = state_of(TWO, home=fed(1, server="o2"), other=fed(8, server="o1"))
    for earlier in range(3):
        for tasks in ({}, OPEN):
            taker = UserClustering().taker(question("home"), context_of(state, **tasks), earlier)
            assert taker == "o2"


def test_nobody_is_sent_to_a_new_user_while_nobody_pleases_anybody() -> None:
    state = state_of(TWO, sad=fed(0, 3, "o1"), ghost=fed(5, server="gone"))
    context = context_of(state)
    assert UserClustering().taker(question("new"), context) is None
    assert UserClustering().taker(question("sad"), context) == "o1"
    open_ = context_of(state, **OPEN)
    assert UserClustering().taker(question("sad"), open_) == "o1"
    assert UserClustering().taker(question("sad"), open_, 1) is None


def promises(name: str, state: EcologyState, shared: float = SHARED) -> list[str]:
    """Everybody by what it promises to a user, the best first."""
    user = state.users.get(name, User())
    pleased = Counter(one.chosen for one in state.users.values() if one.accepted)

    def promise(who: str) -> float:
        size = max(pleased[who], 1) * state.record(who, but_for=name)
        return user.trust(who, shared) + math.log(size)

    return sorted(state.population, key=promise, reverse=True)


def test_in_drawn_worlds_a_user_without_a_server_asks_who_promises_most() -> None:
    for number in range(100):
        families = FAMILIES[: 1 + number % 2]
        state = drawn_world(number, families)
        state.users["h0"] = replace(state.users["h0"], chosen="")
        context = context_of(state, families=dict.fromkeys(families, Kind()))
        pleased = {one.chosen for one in state.users.values() if one.accepted}
        best = promises("h0", state, SHARED * (len(families) > 1))[0]
        taker = UserClustering().taker(question("h0"), context)
        assert taker == (best if pleased & set(state.population) else None)


def test_a_person_that_refuses_all_is_tried_on_others_one_question_at_a_time() -> None:
    asked = replace(question("sad"), verifier=judged_elsewhere)
    takers = set()
    for count in range(len(TWO)):
        homes = {"a": fed(4, server="o1"), "sad": fed(0, count, "o3")}
        context = context_of(state_of(TWO, **homes))
        takers.add(UserClustering().taker(asked, context))
    assert takers == {"o1", "o2", "o3"}


def test_where_replies_are_open_further_questions_go_to_others_too() -> None:
    homes = {"a": fed(4, server="o1"), "b": fed(2, 9, "o2"), "sad": fed(0, 2, "o3")}
    state = state_of(TWO, **homes)
    order = ["o3", *(name for name in promises("sad", state) if name != "o3")]
    for tasks, expected_order in ((OPEN, [*order, "o3"]), ({}, ["o3"] * 4)):
        context = context_of(state, **tasks)
        takers = [UserClustering().taker(question("sad"), context, n) for n in range(4)]
        assert takers == expected_order


# Founding.


def test_founders_divide_the_examples_one_kind_each() -> None:
    examples = [replace(answered("", place % 3), prompt=str(place)) for place in range(20)]
    examples.append(replace(answered("", 3), prompt="alone"))
    state = replace(state_of([]), sketch_space=SketchSpace(examples=tuple(examples)))
    one = {"families": {FAMILIES[0]: Kind()}}
    context = context_of(state, **one)
    found = UserClustering(initial_steps=7).found(context, Room(9, 40, TRAITS))
    groups = [[place for place in range(20) if place % 3 == kind] for kind in range(3)]
    assert found == [
        Found(TRAITS, 4, memories=tuple(examples[place] for place in group), initial_steps=7)
        for group in groups
    ]
    assert all(isinstance(one, Found) and one.traits is not TRAITS for one in found)
    assert len(UserClustering().found(context, Room(2, 40, TRAITS))) == 2
    assert UserClustering().found(context_of(state), Room(9, 40, TRAITS)) == []
    two = replace(state, sketch_space=SketchSpace(examples=(examples[0], examples[3])))
    assert len(UserClustering().found(context_of(two, **one), Room(9, 40, TRAITS))) == 1


# Telling.


def decided(state: EcologyState, asked: Sequence[str], places: int = 9) -> list[Decision]:
    context = context_of(state, *asked)
    return UserClustering(initial_steps=3).tell(context, Room(places, 40, TRAITS))


def expected(state: EcologyState, names: Sequence[str], places: int = 9) -> list[Decision]:
    """What follows where these users look around."""
    partition = ClusterAssignment.of(state, FAMILIES, 2.0)
    generator = Draw(3, state.generation)("forage")
    for _ in range(SWEEPS):
        for place in generator.permutation(len(names)):
            partition.move(names[place])
    partition.merge()
    moved: dict[str, str] = {}
    born = list[Decision]()
    for server, homes in partition.by_server().items():
        if server in state.population:
            moved |= {home: server for home in homes if state.users[home].chosen != server}
        elif server in state.dormant or partition.may_found(*homes):
            if len(born) < places:
                is_dormant = server in state.dormant
                one = Awaken(tuple(homes), server) if is_dormant else None
                born.append(one or coloniser(tuple(homes)))
        else:
            lost = [home for home in homes if state.users[home].chosen != NOBODY]
            moved |= dict.fromkeys(lost, NOBODY)
    return [*([Serve(moved)] if moved else []), *born]


@settings(max_examples=60)
@given(worlds, st.integers(0, 9), st.sets(st.integers(0, 5)), st.integers(0, 3))
def test_who_has_news_or_no_server_looks_around_and_every_fifth_generation_everyone(
    state: EcologyState, generation: int, asked: set[int], places: int
) -> None:
    state.generation = generation
    known = [name for name, user in state.users.items() if user.answers]
    homeless = {name for name in known if state.users[name].chosen not in state.population}
    heard = {f"h{number}" for number in asked}
    news = [name for name in known if generation % 5 == 4 or name in heard | homeless]
    words = [f"h{number}:practice" for number in sorted(asked)] + ["h0:probation"]
    assert decided(state, words, places) == expected(state, news, places)
