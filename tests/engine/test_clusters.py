"""Partitions: where users are explained best, who may be born, and which servers become one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foragers import FAMILIES, NAMES, answered, drawn_world, fed, organelle, state_of, worlds
from symbiont_ecology.ecology.clusters import CENTRED_SKETCHES, COORDINATES, SKETCHES, ClusterStats
from symbiont_ecology.ecology.state import EcologyState
from symbiont_ecology.ecology.strategies.mechanisms.user_clustering import ClusterAssignment
from symbiont_ecology.ecology.users import SHARED, SURE, SketchSpace, User

# Any history of moves and unions.


def eaten(server: str, servers: Mapping[str, str], partition: ClusterAssignment) -> ClusterStats:
    """What the users of a server accepted, and what it remembers."""
    parts = [partition.accepted[name] for name in servers if servers[name] == server]
    parts += [partition.remembered[server]] if server in partition.remembered else []
    return reduce(add, parts)


def books_are_right(partition: ClusterAssignment) -> None:
    """All that a partition keeps count of is what follows from who lives where."""
    servers, state = partition.servers, partition.state
    fed = {name for name in servers if state.users[name].accepted}
    assert +partition.sizes == Counter(servers[name] for name in fed)
    assert set(partition.stats) == {*servers.values(), *partition.remembered}
    for server, found in partition.stats.items():
        expected = eaten(server, servers, partition)
        # One without vectors has one dimension.
        assert found.sums - expected.sums == pytest.approx(0.0, abs=1e-9)
        assert found.counts == pytest.approx(expected.counts, abs=1e-9)
    by_server = partition.by_server()
    assert {name: server for server, names in by_server.items() for name in names} == servers
    assert all(by_server.values())


@settings(max_examples=60)
@given(worlds, st.lists(st.integers(0, 6), max_size=8))
def test_a_partition_keeps_its_books_through_any_history(
    state: EcologyState, history: list[int]
) -> None:
    partition = ClusterAssignment.of(state, FAMILIES, move_penalty=2.0)
    known = {name for name, user in state.users.items() if user.answers}
    assert set(partition.with_refusals) == set(partition.accepted) == known
    assert partition.servers == {
        name: state.users[name].chosen
        for name in partition.with_refusals
        if state.users[name].chosen in state.population
    }
    books_are_right(partition)
    for step in history:
        if step == 6 or f"h{step}" not in known:
            partition.merge()
        else:
            expected = best_for(f"h{step}", partition)
            partition.move(f"h{step}")
            assert partition.servers[f"h{step}"] == expected
        books_are_right(partition)


def best_for(name: str, partition: ClusterAssignment) -> str:
    """Where a user is explained best, straight from what is said of it."""
    state, user = partition.state, partition.state.users[name]
    before = partition.servers.get(name)
    rest = {other: server for other, server in partition.servers.items() if other != name}
    sizes = Counter(server for other, server in rest.items() if state.users[other].accepted)
    scores: dict[str, float] = {}
    for server in partition.stats:
        if sizes[server] or server in partition.remembered:
            agreement = SKETCHES.log_odds(
                eaten(server, rest, partition), partition.with_refusals[name]
            )
            size = math.log(max(sizes[server], 1) * state.record(server, but_for=name))
            scores[server] = agreement + user.trust(server, partition.shared) + size
    if before is not None:
        alone = min(user.trust(before, partition.shared) + SURE, 0.0)
        alone += math.log(state.record(before, but_for=name))
        move_penalty = partition.move_penalty if user.accepted else 0.0
        scores[before] = scores.get(before, alone) + move_penalty
    nobody = math.log(0.5)
    best = max(scores, key=scores.__getitem__, default="")
    is_colony = not best or scores[best] < nobody
    return f"new cluster {partition.new_clusters + 1}" if is_colony else best


def united(partition: ClusterAssignment) -> dict[str, str]:
    """Who lives where after all unions that explain more, straight from what is said of them."""
    state, servers = partition.state, dict(partition.servers)

    def liking(server: str, names: Sequence[str]) -> float:
        """What users of another one say for it."""
        taste = reduce(add, (partition.with_refusals[name] for name in names))
        trust = sum(state.users[name].trust(server, partition.shared) for name in names)
        return SKETCHES.log_odds(eaten(server, servers, partition), taste) + trust

    while True:
        homes = {
            server: [name for name in servers if servers[name] == server]
            for server in dict.fromkeys(servers.values())
        }
        fed = {who: sum(bool(state.users[n].accepted) for n in at) for who, at in homes.items()}
        gains = {
            (one, other): min(liking(one, homes[other]), liking(other, homes[one]))
            + math.lgamma(fed[one] + fed[other])
            - math.lgamma(fed[one])
            - math.lgamma(fed[other])
            for one, other in combinations([who for who in homes if fed[who]], 2)
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= partition.move_penalty:
            return servers
        weights = {who: eaten(who, servers, partition).counts.sum() for who in best}
        left, kept = sorted(best, key=lambda who: (who in state.population, weights[who]))
        servers |= dict.fromkeys(homes[left], kept)


def test_in_a_hundred_drawn_worlds_all_go_where_they_are_explained_best() -> None:
    unions = 0
    for number in range(100):
        families = FAMILIES[: 1 + number % 2]
        partition = ClusterAssignment.of(drawn_world(number, families), families, move_penalty=2.0)
        for _ in range(2):
            servers = united(partition)
            unions += servers != partition.servers
            partition.merge()
            assert partition.servers == servers
            for name in list(partition.with_refusals):
                best = best_for(name, partition)
                partition.move(name)
                assert partition.servers[name] == best
    assert unions > 20  # or little would have been tried


def test_a_partition_knows_how_alike_answers_are_and_how_often_kinds_agree() -> None:
    state = state_of([])
    known = ClusterAssignment.of(state, FAMILIES, 3.0)
    assert (known.prior, known.shared, known.move_penalty) == (SKETCHES, SHARED, 3.0)
    state.sketch_space = SketchSpace(common={"math.add": "x"})
    common = ClusterAssignment.of(state, FAMILIES[:1], 3.0)
    assert (common.prior, common.shared) == (CENTRED_SKETCHES, 0.0)
    state.sketch_space = SketchSpace(bases={"math.add": "x"})
    alone = ClusterAssignment.of(state, FAMILIES[:1], 3.0)
    assert (alone.prior, alone.shared) == (COORDINATES, 0.0)


def test_sizes_speak_for_one_kind_unless_diets_count_as_few_answers() -> None:
    assert SKETCHES.union_log_odds(5, 3) == pytest.approx(math.log(5040 / (24 * 2)))
    assert COORDINATES.union_log_odds(5, 3) == 0.0
    large = {f"h{number}": fed(1, server="o1") for number in range(5)}
    new = User("", answers=(answered("gone", 0),))
    state = state_of(
        [organelle("o1"), organelle("o2")], **large, rival=fed(6, server="o2"), new=new
    )
    for bases, server in ((dict[str, str](), "o1"), ({"math.add": "x"}, "o2")):
        state.sketch_space = SketchSpace(bases=bases)
        partition = ClusterAssignment.of(state, FAMILIES[:1], 0.0)
        partition.move("new")
        assert partition.servers["new"] == server


# May a colony be founded?


def test_a_colony_needs_two_accepted_answers_among_its_users() -> None:
    state = state_of([organelle("o1")], one=fed(1), other=fed(1, 3), none=fed(0, 3))
    partition = ClusterAssignment.of(state, FAMILIES, 2.0)
    assert partition.may_found("one", "other")
    assert not partition.may_found("one", "none")
    assert not partition.may_found("none")


@pytest.mark.parametrize(("tried", "may"), [(("o1", "o2"), True), (("o1",), False)])
def test_without_food_somebody_is_born_after_ten_answers_of_all_who_please_others(
    tried: tuple[str, ...], may: bool
) -> None:
    def hungry(count: int) -> User:
        answers = [answered(tried[n % len(tried)], 1, accepted=False) for n in range(count)]
        return User("o3", answers=tuple(answers))

    living = [organelle(name) for name in NAMES]
    others = {"first": fed(3, server="o1"), "second": fed(3, server="o2"), "sad": fed(0, 2, "o4")}
    for count in (9, 10):
        state = state_of(living, **others, hungry=hungry(count), fresh=fed(0, 1))
        partition = ClusterAssignment.of(state, FAMILIES, 2.0)
        assert partition.may_found("hungry") == (may and count == 10)
        assert partition.may_found("fresh", "hungry") == (may and count == 10)
