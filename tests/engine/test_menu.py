"""A menu of phrases: whom it pleases is found out by verdicts, and its organelles learn by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foragers import answered, organelle, state_of
from runs import resume, start
from symbiont_ecology.adapters.blobs import BlobStore
from symbiont_ecology.base.errors import ConfigError
from symbiont_ecology.base.event_log import read_events
from symbiont_ecology.base.events import Acted, Learned, Served
from symbiont_ecology.base.rng import Draw
from symbiont_ecology.base.types import TURN_END, Item
from symbiont_ecology.ecology import Found, Serve
from symbiont_ecology.ecology.state import EcologyState, load_state
from symbiont_ecology.ecology.strategies import StrategyContext
from symbiont_ecology.ecology.strategies.mechanisms import Room
from symbiont_ecology.ecology.strategies.mechanisms.menu import (
    MAX_COMPARED,
    NOTE,
    Kinds,
    Menu,
    NoteKinds,
    displeased,
)
from symbiont_ecology.ecology.users import NOBODY, User
from symbiont_ecology.run.config import RunConfig
from toy import ToyHost, toy_config, toy_ecology, toy_prices

NAMES = ("o1", "o2", "o3")
ROOM = Room(3, 99, {"learning_rate": 0.1})


def judged(**verdicts: str) -> User:
    """A user that accepted (+) and refused (-) replies, in that order."""
    return User(
        answers=tuple(
            answered(who, 0, accepted=mark == "+")
            for who, said in verdicts.items()
            for mark in said
        )
    )


users = st.lists(
    st.builds(judged, **{name: st.text("+-", max_size=6) for name in (*NAMES, "dead")}), max_size=6
)


def context_of(state: EcologyState, seed: int = 0) -> StrategyContext:
    unused: Any = None
    return StrategyContext(state, unused, unused, unused, 4, draw=Draw(seed, state.generation))


def question(user: str, name: str = "q") -> Item:
    return Item(name, "chat", "any", "", "Hello", 4, verifier=str, user=user)


@given(users, st.randoms(use_true_random=False))
def test_kinds_do_not_depend_on_the_order_of_users_and_survive_a_checkpoint(
    users: list[User], random: Any
) -> None:
    kinds = Kinds.of(users, NAMES)
    assert ((kinds.rates > 0) & (kinds.rates < 1)).all()
    assert kinds.shares.sum() == pytest.approx(1)
    random.shuffle(users)
    again = Kinds.of(users, NAMES)
    assert np.allclose(again.rates, kinds.rates)
    read = Kinds.read(kinds.written(), NAMES)
    for user in users:
        assert np.allclose(read.chances(user), kinds.chances(user), atol=0.01)


def test_of_a_newborn_nothing_is_known_and_the_dead_are_no_choice() -> None:
    note = Kinds.of([judged(o1="++", o2="--")], ["o1", "o2"]).written()
    kinds = Kinds.read(note, ["o2", "o9"])
    assert kinds.names == ("o2", "o9")
    assert kinds.rates[1].tolist() == [pytest.approx(0.1), 0.5]


def takers(user: str, state: EcologyState, count: int = 200) -> Counter[str | None]:
    context = context_of(state)
    asked = [question(user, f"q{number}") for number in range(count)]
    return Counter(Menu().taker(item, context) for item in asked)


def noted(state: EcologyState) -> EcologyState:
    """The state, with its kinds noted."""
    kinds = Kinds.of(state.users.values(), list(state.population))
    return replace(state, notes={NOTE: kinds.written()})


def test_a_user_that_refuses_everything_is_tried_on_others() -> None:
    crowd = {f"u{number}": judged(o1="++++", o2="--") for number in range(5)}
    state = noted(state_of([organelle(name) for name in NAMES], sad=judged(o1="------"), **crowd))
    taken = takers("sad", state)
    assert taken["o1"] < 20
    assert min(taken["o2"], taken["o3"]) > 40


def test_what_pleased_those_who_agree_is_tried_first() -> None:
    crowd = {f"a{number}": judged(o1="-+-", o2="+++", o3="---") for number in range(4)}
    crowd |= {f"b{number}": judged(o1="---", o2="---", o3="+++") for number in range(4)}
    state = noted(state_of([organelle(name) for name in NAMES], new=judged(o1="+"), **crowd))
    assert takers("new", state)["o2"] > takers("nobody has met me", state)["o2"]


def test_nobody_is_chosen_where_nobody_lives() -> None:
    assert Menu().taker(question("a"), context_of(state_of([]))) is None
    told = Menu(("", "Please. ")).tell(context_of(state_of([])), ROOM)
    assert [one.phrase for one in told if isinstance(one, Found)] == [""]


def test_who_accepted_something_is_served_and_the_others_are_not() -> None:
    state = state_of([organelle(name) for name in NAMES], a=judged(o2="++"), b=judged(o2="--"))
    state.users["b"] = replace(state.users["b"], chosen="o2")
    note, serve, *births = Menu().tell(context_of(state), ROOM)
    assert isinstance(note, NoteKinds)
    assert serve == Serve({"a": "o2", "b": NOBODY})
    assert births == []


@given(st.lists(st.text("+-", max_size=12), max_size=6))
def test_alike_users_are_not_parted_and_who_is_parted_accepts_less(said: Sequence[str]) -> None:
    users = {f"u{number}": judged(o1=one) for number, one in enumerate(said)}
    few = displeased(users, "o1")
    assert len(set(few)) < max(len(users), 1)

    def rate(name: str) -> float:
        return float(np.mean([one.is_accepted for one in users[name].answers[-MAX_COMPARED:]]))

    rest = [name for name in users if name not in few and users[name].answers]
    assert not few or max(map(rate, few)) <= min(map(rate, rest))
    assert displeased(dict.fromkeys("abc", judged(o1="+-+-")), "o1") == ()


def test_users_whom_their_server_pleases_less_get_one_of_their_own_with_its_phrase() -> None:
    menu = Menu(("Please. ",))
    (founder,) = menu.found(context_of(state_of([])), ROOM)
    assert isinstance(founder, Found)
    crowd = {f"a{number}": judged(o1="++++++") for number in range(3)}
    crowd |= {f"b{number}": judged(o1="-+----") for number in range(3)}
    state = state_of([replace(organelle("o1"), operator=founder.operator)], **crowd)
    born = [one for one in menu.tell(context_of(state), ROOM) if isinstance(one, Found)]
    assert [(one.users, one.parents, one.phrase) for one in born] == [
        (("b0", "b1", "b2"), ("o1",), "Please. ")
    ]
    assert not any(isinstance(one, Found) for one in menu.tell(context_of(state), Room(0, 0, {})))


def test_a_phrase_that_died_is_tried_again_if_somebody_is_pleased_by_nobody() -> None:
    menu = Menu(("", "Please. "))
    pleased, sad = judged(o1="+" * 9), judged(o1="-" * 9)
    for user, count in ((pleased, 0), (sad, 1)):
        state = state_of([organelle("o1")], a=user)
        born = [one for one in menu.tell(context_of(state), ROOM) if isinstance(one, Found)]
        assert [one.phrase for one in born] == ["Please. "] * count


def test_a_phrase_with_a_mark_that_parts_turns_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"menu\.phrases: expected text without U\+001D"):
        Menu((f"a{TURN_END}",))


# Runs, lived by toys.

PHRASES = ["", "Please. ", "Now. "]


def plan(generations: int = 6) -> RunConfig:
    """Six users, asked by three phrases."""
    off = dict.fromkeys(("breeding", "refounding", "upheaval"), False)
    strategy = toy_ecology(mechanisms={**off, "menu": {"phrases": PHRASES}}, samples=1)
    economy = toy_prices(rent=10, ticket=0, dowry=90_000)
    return toy_config(
        generations=generations,
        strategy=strategy,
        economy=economy,
        learning_rule={"kind": "expert_iteration", "replay": 1.0, "skip": 0.0},
    )


def test_organelles_with_the_phrases_answer_and_those_learn_who_serve(tmp_path: Path) -> None:
    start(plan(), tmp_path / "run", host=ToyHost())
    state, store = load_state(tmp_path / "run"), BlobStore(tmp_path / "run/blobs")
    said = [store.weights(one.genome.weights).phrase for one in state.population.values()]
    assert said[:3] == PHRASES
    events = list(read_events(tmp_path / "run/events.jsonl"))
    asked = {one.id for one in events if isinstance(one, Acted)}
    learned = {one.id for one in events if isinstance(one, Learned) and one.lessons}
    serving = {who for one in events if isinstance(one, Served) for who in one.servers.values()}
    assert learned
    assert learned <= serving & asked < asked


def test_a_run_with_a_menu_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    start(plan(), tmp_path / "whole", host=ToyHost())
    start(
        plan(),
        tmp_path / "cut",
        host=ToyHost(),
        should_stop=iter([False] * 3 + [True] * 9).__next__,
    )
    resume(tmp_path / "cut", host=ToyHost())
    assert load_state(tmp_path / "cut") == load_state(tmp_path / "whole")
